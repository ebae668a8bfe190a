"""Slurm's own daemons on pretend hosts, for job scripts to be submitted to.

    with Slurm(nodes=2) as slurm:
        job = slurm.submit("distributed_data_parallel.slurm", folder="job_scripts")
        print(slurm.wait(job, timeout=120), slurm.output(job))

The commands (sbatch, scancel, qsub, ...) run on the host `login`, jobs on node1, node2, ... Key,
state and logs are in a folder of this lab; nothing under /etc, /run or /var is read or written. A
node says that it has more cores and memory than the machine has, and `gpus` pretend GPUs: Slurm
counts them and sets CUDA_VISIBLE_DEVICES, torch finds none. Slurm has no cgroups here: what a job
leaves running when it ends keeps running, and `Slurm.processes` shows it.

qsub, qstat and qdel are Slurm's replacements for those of PBS. They read `#PBS` lines, ignore what
they do not know, and here get PBS_NODEFILE from `task_prolog` and pbsdsh from `pbsdsh`, both beside
this file. It is not OpenPBS.
"""

import contextlib
import os
import re
import secrets
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.clusters.hosts import Hosts, Process

HERE = Path(__file__).parent
FOLDER = "ddp-workbook-slurm-"  # the process id of the owner follows
START_TIMEOUT_S = 120  # seconds; it takes three on an idle machine
DAEMONS = ("munged", "slurmctld", "slurmd", "slurmstepd")
# fmt: off
END_STATES = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL",
              "OUT_OF_MEMORY", "TIMEOUT")
# fmt: on

SLURM_CONF = """
ClusterName=lab
SlurmctldHost=login({login})
SlurmctldPort=17700
SlurmdPort=17701
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# A requeued job waits until the credential of its first run has expired: 120 s unless told.
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
TaskProlog={here}/task_prolog
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
# What the configuration says of a node counts, not what slurmd finds on this machine.
SlurmdParameters=config_overrides
# What can never run is refused when it is submitted, instead of waiting in the queue.
EnforcePartLimits=ALL
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
ReturnToService=2
JobRequeue=1
KillWait=5
MinJobAge=3600
SlurmctldTimeout=30
SlurmdTimeout=10
MailProg=/bin/true
{gpu_line}
NodeName={names} CPUs={cpus} RealMemory=16000 {gres} State=UNKNOWN
PartitionName={partition} Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""
# Told, not found out: the search fails where /sys/fs/cgroup is not mounted.
CGROUP_CONF = "CgroupPlugin=cgroup/v1\nConstrainCores=no\nConstrainRAMSpace=no\n"


class Slurm:
    """A Slurm cluster of its own, from `with` to the end of the block; needs root.

    nodes: how many; they are the hosts 1 to `nodes` of `hosts`, host 0 is `login`.
    partition: the name of its only partition.
    gpus, cpus: of each node, as Slurm counts them.

    Raises RuntimeError with the ends of the daemons' logs if the nodes do not come up.
    """

    def __init__(
        self, nodes: int = 2, partition: str = "lab", gpus: int = 4, cpus: int = 8
    ) -> None:
        self.partition, self.gpus, self.cpus = partition, gpus, cpus
        self.nodes = [f"node{number}" for number in range(1, nodes + 1)]
        self.hosts = Hosts(["login", *self.nodes])

    def __enter__(self) -> "Slurm":
        remove_leftovers()
        with contextlib.ExitStack() as stack:
            self.folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-"))
            stack.callback(shutil.rmtree, self.folder)
            stack.enter_context(self.hosts)
            self._write_files()
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error) -> None:
        self._stack.close()

    # What a user of the cluster does

    def run(
        self, command: Sequence[str], timeout: float = 60, **options
    ) -> subprocess.CompletedProcess:
        """Run a command on the login host, as `Hosts.run`; `env` adds to the environment."""
        options["env"] = self.environment | options.get("env", {})
        return self.hosts.run(0, command, timeout, **options)

    def submit(self, script: str, folder: str | Path, env: dict[str, str] | None = None) -> str:
        """Submit a script from this folder, a .pbs one by qsub, others by sbatch; the job's id.

        Raises RuntimeError with the words of sbatch or qsub if the job is refused.
        """
        line = ["qsub" if script.endswith(".pbs") else "sbatch", script]
        result = self.run(line, cwd=folder, env=env or {})
        job = re.search(r"\d+", result.stdout)
        if result.returncode or job is None:
            raise RuntimeError(f"{' '.join(line)}: {(result.stderr or result.stdout).strip()}")
        return job[0]

    def job(self, job: str) -> dict[str, str]:
        """What `scontrol show job` says: JobState, ExitCode, StdOut, NodeList, Restarts, ..."""
        text = self.run(["scontrol", "--oneliner", "show", "job", job], check=True).stdout
        return dict(re.findall(r"(\S+?)=(.*?)(?=\s+[\w:/]+=|\s*$)", text))

    def wait(self, job: str, timeout: float, states: Sequence[str] = END_STATES) -> str:
        """Wait until a job is in one of these states, unless told any of its ends; return it.

        Raises TimeoutError with the end of the job's output.
        """
        end = time.monotonic() + timeout
        while (state := self.job(job)["JobState"]) not in states:
            if time.monotonic() > end:
                text = self.output(job)[-2000:]
                raise TimeoutError(f"Job {job} is {state} after {timeout} s. It printed:\n{text}")
            time.sleep(0.2)
        return state

    def output(self, job: str) -> str:
        """What the job has printed so far, its standard error after its standard output.

        qsub gives each a file of its own, whatever the script's `#PBS -j oe` says.
        """
        known = self.job(job)
        paths = dict.fromkeys([Path(known["StdOut"]), Path(known["StdErr"])])
        return "".join(path.read_text(errors="replace") for path in paths if path.exists())

    def processes(self) -> list[psutil.Process]:
        """All processes on the nodes that are not Slurm's own: those of jobs."""
        processes = []
        for i in range(1, len(self.nodes) + 1):
            for process in self.hosts.processes(i):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if process.name() not in DAEMONS:
                        processes.append(process)
        return processes

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a login shell on this cluster."""
        path = os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]])
        return {**os.environ, "PATH": path, "SLURM_CONF": str(self.folder / "slurm.conf")}

    # How it comes up

    def _write_files(self) -> None:
        for part in ("munge", "state", "spool", "log", "nodefiles", "bin", "gpus"):
            (self.folder / part).mkdir(mode=0o755)
        for node in self.nodes:
            (self.folder / "spool" / node).mkdir()
        (self.folder / "bin" / "pbsdsh").symlink_to(HERE / "pbsdsh")
        key = self.folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        self._write("cgroup.conf", CGROUP_CONF)
        self._write("plugstack.conf", "optional spank_pbs.so\n")  # sets PBS_JOBID, PBS_O_WORKDIR
        self._write("gres.conf", self._pretend_gpus())
        self._write(
            "slurm.conf",
            SLURM_CONF.format(
                login=self.hosts.addresses[0],
                folder=self.folder,
                here=HERE,
                names=",".join(self.nodes),
                partition=self.partition,
                cpus=self.cpus,
                gpu_line="GresTypes=gpu" if self.gpus else "",
                gres=f"Gres=gpu:{self.gpus}" if self.gpus else "",
            ),
        )

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def _pretend_gpus(self) -> str:
        """Make the devices, return gres.conf: slurmd wants to see a character device for a GPU."""
        if not self.gpus:
            return ""
        for number in range(self.gpus):
            null = os.makedev(1, 3)
            os.mknod(self.folder / "gpus" / f"gpu{number}", stat.S_IFCHR | 0o600, null)
        return f"Name=gpu File={self.folder}/gpus/gpu[0-{self.gpus - 1}]\n"

    def _start(self) -> None:
        munge, conf = self.folder / "munge", str(self.folder / "slurm.conf")
        own = {"key-file": "key", "socket": "socket", "pid-file": "pid", "seed-file": "seed"}
        files = [f"--{option}={munge / name}" for option, name in own.items()]
        self._daemons = {
            "munged": self._daemon(0, "munged", "--foreground", "--force", *files),
            "slurmctld": self._daemon(0, "slurmctld", "-D", "-c", "-f", conf),
        }
        for i, node in enumerate(self.nodes, 1):
            self._daemons[f"slurmd.{node}"] = self._daemon(i, "slurmd", "-D", "-f", conf)
        self._wait_for_nodes()

    def _daemon(self, i: int, *command: str) -> Process:
        name = command[0] if i == 0 else f"{command[0]}.{self.hosts.names[i]}"
        with open(self.folder / "log" / f"{name}.log", "w") as log:
            return self.hosts.popen(i, command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _wait_for_nodes(self) -> None:
        end = time.monotonic() + START_TIMEOUT_S
        idle = ["sinfo", "--noheader", "--Node", "--states=idle", "--format=%N"]
        while len(set(self.run(idle).stdout.split())) < len(self.nodes):
            ended = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            if ended or time.monotonic() > end:
                reason = (
                    f"{', '.join(ended)} ended" if ended else f"not up after {START_TIMEOUT_S} s"
                )
                raise RuntimeError(f"Slurm did not start: {reason}.\n{self.logs()}")
            time.sleep(0.1)

    def logs(self, lines: int = 8) -> str:
        """The last lines of every daemon's log, for an error message."""
        texts = {file.name: file.read_text() for file in sorted(self.folder.glob("log/*"))}
        ends = {name: "\n  ".join(text.splitlines()[-lines:]) for name, text in texts.items()}
        return "\n".join(f"{name}:\n  {end}" for name, end in ends.items())


def remove_leftovers() -> None:
    """Remove the folders of labs whose owner died without a chance to do it."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        owner = re.match(rf"{FOLDER}(\d+)-", folder.name)
        if owner and not psutil.pid_exists(int(owner[1])):
            shutil.rmtree(folder, ignore_errors=True)
