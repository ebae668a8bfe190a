"""Plays a job script without a scheduler: which commands it would start, and on which nodes.

bash runs the script in a temporary folder, where `fake_commands.sh` takes the names of srun,
pbsdsh, torchrun and others. Their behaviour was seen on Slurm 22.05; there was no PBS to compare
with.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from ddp_workbook.judging import torchrun
from ddp_workbook.judging.directives import InvalidScript, JobRequest

FAKE_COMMANDS = Path(__file__).with_name("fake_commands.sh")
BASH = shutil.which("bash") or ""  # "" where there is none
COMMANDS = """torchrun python python3 bash srun pbsdsh ssh pbs_tmrsh mpiexec mpirun hostname uname
getent scontrol nvidia-smi wc module ml conda mamba sleep sbatch qsub scancel squeue qdel qstat"""
# A command named by its path, such as /bin/bash or $HOME/venv/bin/torchrun.
PATHS = re.compile(rf"(?<![\w/])[\w./~${{}}-]*/bin/({'|'.join(COMMANDS.split())})(?![\w/])")
TIMEOUT_S = 6.0  # seconds; a play takes 0.05, and 0.5 beside fifteen others
CPU_LIMIT = "ulimit -St 1; ulimit -Ht 2"  # seconds of processor time for the script's own shell
FOLDER_PREFIX = "ddp-workbook-job-"  # followed by the process id of the player
CPU_LIMIT_STATUS = -getattr(signal, "SIGXCPU", 24)
MAX_NODES = 16  # to play
NODE_PREFIX = "gpu-"  # of the nodes' names
PROGRAM = "train.py"


@dataclass(frozen=True)
class Start:
    """A command that has started on a node."""

    node: str
    folder: str  # below the played one: "submitted", or "home"
    words: tuple[str, ...]
    line: torchrun.Line | None = None  # what they say, if torchrun accepts them
    problem: torchrun.Unreadable | None = None  # why it does not


@dataclass
class Run:
    """The outcome of running the script once."""

    nodes: list[str]
    addresses: dict[str, str]  # by address: the node
    starts: list[Start] = field(default_factory=list)
    status: int | None = None  # None: it did not end
    errors: str = ""  # the last line on stderr

    @property
    def rendezvous(self) -> list[torchrun.Line]:
        """The lines that look for other nodes."""
        return [start.line for start in self.starts if start.line and not start.line.standalone]


def refuse_bad_syntax(text: str) -> None:
    """Raise InvalidScript with what bash says about a script that it cannot read."""
    result = subprocess.run([BASH, "-n"], input=text, capture_output=True, text=True, check=False)
    if result.returncode:
        raise InvalidScript(f"bash: {last_line(result.stderr).removeprefix(f'{BASH}: ')}")


def last_line(text: str) -> str:
    """The last line that is not empty."""
    return ([""] + [line for line in text.splitlines() if line.strip()])[-1].strip()[:300]


def run_script(scheduler: str, text: str, request: JobRequest, job: int, fails: bool) -> Run:
    """Run the script as job `job`; with `fails`, torchrun fails on the last node."""
    count = max(1, min(request.nodes, MAX_NODES))
    first, step = (7, 4) if not fails else (3, 5)  # other nodes in each job
    numbers = [first + step * place for place in range(count)]
    names = [f"{NODE_PREFIX}{number:02d}" for number in numbers]
    run = Run(
        names, {f"10.0.0.{number}": name for number, name in zip(numbers, names, strict=True)}
    )
    with fake_cluster(run, request, fails) as cluster:
        environment = {
            "PATH": f"{cluster}/bin:/usr/bin:/bin",
            "HOME": f"{cluster}/home",
            "USER": "learner",
            "TMPDIR": f"{cluster}/home",
            "HOSTNAME": names[0],  # a task of srun inherits it; on Slurm it names the first node
            "STAND_IN_NODE": names[0],
        }
        for command in COMMANDS.split():  # even if a profile sets another PATH
            environment[f"BASH_FUNC_{command}%%"] = f'() {{ {cluster}/bin/{command} "$@"; }}'
        if scheduler == "slurm":
            environment |= slurm_variables(cluster, request, job, run)
        else:
            environment |= pbs_variables(cluster, request, job, run)
        execute(run, cluster, text, environment, "submitted" if scheduler == "slurm" else "home")
        run.starts = sorted(
            map(read_start, Path(cluster, "started").iterdir()), key=lambda start: start.node
        )
    return run


def slurm_variables(cluster: str, request: JobRequest, job: int, run: Run) -> dict[str, str]:
    """The variables of a batch script."""
    count = f"{len(run.nodes)}"
    numbers = ",".join(name.removeprefix(NODE_PREFIX) for name in run.nodes)
    nodes = run.nodes[0] if len(run.nodes) == 1 else f"{NODE_PREFIX}[{numbers}]"
    variables = {
        "SLURM_JOB_ID": f"{job}",
        "SLURM_JOBID": f"{job}",
        "SLURM_JOB_NAME": "digits",
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_NODELIST": nodes,
        "SLURM_NNODES": count,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_SUBMIT_DIR": f"{cluster}/submitted",
        "SLURMD_NODENAME": run.nodes[0],
        "SLURM_LAUNCH_NODE_IPADDR": next(iter(run.addresses)),
        "SLURM_CPUS_ON_NODE": "32",
    }
    if request.tasks:
        variables |= {"SLURM_NTASKS": f"{request.tasks}", "SLURM_NPROCS": f"{request.tasks}"}
    if request.per_node:
        variables["SLURM_NTASKS_PER_NODE"] = f"{request.per_node}"
    if request.gpus:
        gpus = f"{request.gpus:g}"
        devices = ",".join(map(str, range(int(request.gpus))))
        variables |= {"SLURM_GPUS_ON_NODE": gpus, "CUDA_VISIBLE_DEVICES": devices}
        variables["SLURM_GPUS_PER_NODE"] = gpus
    return variables


def pbs_variables(cluster: str, request: JobRequest, job: int, run: Run) -> dict[str, str]:
    """The variables of a PBS job; writes the list of nodes, with a line for each MPI process."""
    lines = [name for name in run.nodes for _ in range(request.per_node or 1)]
    Path(cluster, "nodefile").write_text("".join(f"{line}\n" for line in lines))
    return {
        "PBS_JOBID": f"{job}.pbs-1",
        "PBS_JOBNAME": "digits",
        "PBS_NODEFILE": f"{cluster}/nodefile",
        "PBS_O_WORKDIR": f"{cluster}/submitted",
        "PBS_O_HOME": f"{cluster}/home",
        "PBS_NODENUM": "0",
    }


@contextmanager
def fake_cluster(run: Run, request: JobRequest, fails: bool) -> Iterator[str]:
    """A temporary folder with the stand-ins and a home folder."""
    remove_stale_folders()
    with tempfile.TemporaryDirectory(prefix=f"{FOLDER_PREFIX}{os.getpid()}-") as cluster:
        folder = Path(cluster)
        for name in ("bin", "home", "submitted", "started"):
            (folder / name).mkdir()
        shutil.copy(FAKE_COMMANDS, folder / "fake_commands.sh")
        (folder / "fake_commands.sh").chmod(0o755)
        for name in COMMANDS.split():
            (folder / "bin" / name).symlink_to("../fake_commands.sh")
        (folder / "submitted" / PROGRAM).touch()
        (folder / "nodes").write_text(
            "".join(f"{name} {address}\n" for address, name in run.addresses.items())
        )
        (folder / "gpus").write_text(f"{request.gpus:.0f}")
        (folder / "python").write_text(sys.executable)
        if fails:
            (folder / "fails").touch()
        yield os.path.realpath(cluster)


def remove_stale_folders() -> None:
    """Remove the folders of players that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        player = folder.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        if player.isdigit() and not psutil.pid_exists(int(player)):
            shutil.rmtree(folder, ignore_errors=True)


def execute(run: Run, cluster: str, text: str, environment: dict[str, str], folder: str) -> None:
    """Run the script with bash, for TIMEOUT_S at most, and end what it leaves behind."""
    script = Path(cluster, "script")
    script.write_text(PATHS.sub(r"\1", text))
    with open(f"{cluster}/errors", "w+b") as errors:
        process = subprocess.Popen(
            # Two limits: at a common soft and hard limit the kernel sends SIGKILL, as others could.
            [BASH, "-c", f'{CPU_LIMIT}; exec "$0" "$1"', BASH, str(script)],
            cwd=f"{cluster}/{folder}",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        until = time.monotonic() + TIMEOUT_S
        try:
            while process.poll() is None and time.monotonic() < until:
                time.sleep(0.005)
            run.status = None if process.returncode == CPU_LIMIT_STATUS else process.returncode
        finally:
            with suppress(ProcessLookupError, PermissionError):  # and what it left running
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        errors.seek(0)
        last = last_line(errors.read().decode(errors="replace"))
        run.errors = last.replace(f"{script}: ", "").replace(cluster, "")


def read_start(file: Path) -> Start:
    """Read what a stand-in has noted."""
    node, folder, *words = file.read_text(errors="replace").split("\0")[:-1]
    command = Start(node, Path(folder).name, tuple(words))
    try:
        return replace(command, line=torchrun.read(words))
    except torchrun.Unreadable as problem:
        return replace(command, problem=problem)
