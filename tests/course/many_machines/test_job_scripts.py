"""The job scripts: what they start, on a real Slurm and without one, and what they refuse.

Most tests let a script run with stand-ins for `srun` and `scontrol`, which need neither root nor
Slurm. Those marked `cluster` submit it to Slurm's own daemons on pretend hosts, by typing what its
README says.
"""

import contextlib
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from benchmarks.traces import wait_until
from ddp_workbook.chapters import single_process
from ddp_workbook.chapters.results import read_results
from ddp_workbook.exercises.many_machines import fix_job_script
from ddp_workbook.judging.directives import parse_qsub, parse_request
from tests.clusters.slurm import Slurm
from tools.set_up import ROOT

FOLDER = ROOT / "job_scripts"
STAND_ALONE = FOLDER / "stand_alone.slurm"  # uses nothing of the folder, and runs a train.py
SLURM, PBS = sorted(set(FOLDER.glob("*.slurm")) - {STAND_ALONE}), sorted(FOLDER.glob("*.pbs"))
SCRIPTS = [*SLURM, *PBS]
PBS_STAND_INS = [ROOT / "tests" / "clusters" / name for name in ("pbsdsh", "task_prolog")]
SHELL = [*SCRIPTS, STAND_ALONE, *sorted(FOLDER.glob("*.sh")), *PBS_STAND_INS]
README = (FOLDER / "README.md").read_text()
SUBMIT = {".slurm": "sbatch", ".pbs": "qsub"}
each_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)


# The files


@pytest.mark.skipif(
    not shutil.which("shellcheck"), reason="`make system-packages` installs shellcheck"
)
def test_shellcheck_finds_nothing():
    """It reads the shared lines with one script of each kind; with all of them it takes 3 s."""
    together = [path for path in SHELL if path.suffix == ".sh" or path.stem == "requeue"]
    alone = [path for path in SHELL if path not in together]
    for command in (["shellcheck", *together], ["shellcheck", "--norc", "-e", "SC1091", *alone]):
        result = subprocess.run(command, capture_output=True, text=True)
        assert (result.stdout, result.stderr) == ("", "")


def test_each_program_has_a_script_for_both_schedulers():
    assert {path.stem for path in SLURM} == {path.stem for path in PBS}
    stems = {"distributed_data_parallel", "fully_sharded"}
    nodes = {f"{stem}_nodes" for stem in stems}
    assert {path.stem for path in SLURM} == stems | nodes | {"data_parallel", "requeue"}


def test_the_readmes_line_for_machines_without_a_scheduler():
    (line,) = re.findall(r"^\.venv/bin/torchrun (.*)$", README, re.MULTILINE)
    options = get_args_parser().parse_args(line.split())
    assert (options.nnodes, options.nproc_per_node, options.rdzv_backend) == ("2", "4", "c10d")
    assert options.rdzv_id and options.rdzv_endpoint == "HOST:29500"
    assert (ROOT / options.training_script).is_file()


@each_script
def test_each_directive_stands_before_the_first_command(script):
    """Slurm and PBS do not say that they ignore the others."""
    lines = script.read_text().splitlines()
    first = next(n for n, line in enumerate(lines) if line and not line.startswith("#"))
    assert not [line for line in lines[first:] if re.match(r"#\s*(SBATCH|PBS)", line)]


# Resources of a chunk, in OpenPBS's pbs_resources(7B): a misspelt one is ignored in silence.
CHUNK = {"ncpus", "ngpus", "mpiprocs"}


@pytest.mark.parametrize("stem", [path.stem for path in SLURM])
def test_both_schedulers_are_asked_for_the_same(stem):
    """By the reader that judges `fix_job_script`: there is no PBS here that would refuse."""
    slurm, pbs = (
        parse_request(scheduler, (FOLDER / f"{stem}.{scheduler}").read_text())
        for scheduler in ("slurm", "pbs")
    )
    assert (pbs.nodes, pbs.gpus, pbs.seconds) == (slurm.nodes, slurm.gpus, slurm.seconds)
    assert slurm.seconds and pbs.unread_lines == slurm.unread_lines == []
    script = (FOLDER / f"{stem}.pbs").read_text()
    assert set(re.findall(r":(\w+)=", re.search(r"select=(\S+)", script)[1])) <= CHUNK
    assert re.search(r"(?m)^#PBS -N \w{1,15}$", script)  # older ones take no longer name


def test_the_stand_alone_script_starts_one_torchrun_on_each_node():
    """By the stand-ins that judge `fix_job_script`: two nodes, four ranks each, one endpoint."""
    text = STAND_ALONE.read_text()
    assert fix_job_script.facts_of("slurm", text) == fix_job_script.REQUIRED
    without = text.replace("srun --cpus-per-task=32", "")
    assert fix_job_script.facts_of("slurm", without) != fix_job_script.REQUIRED
    assert len([line for line in text.splitlines() if line]) <= 15, "it stands on the page"


# Without a scheduler: what a script starts, and what it refuses


class Desk:
    """A copy of the folder in a checkout of its own, and stand-ins for a scheduler's commands."""

    def __init__(self, top: Path) -> None:
        self.folder, self.bin = top / "job_scripts", top / "bin"
        ignored = shutil.ignore_patterns("runs", "site.sh", "results.csv", "*.log", "*.[oe][0-9]*")
        shutil.copytree(FOLDER, self.folder, ignore=ignored)
        (top / ".venv").symlink_to(sys.prefix)
        self.bin.mkdir()

    def command(self, name: str, text: str) -> None:
        """Put a command on PATH."""
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def change(self, script: str, old: str, new: str) -> None:
        """Edit a script as a reader would."""
        path = self.folder / script
        text = path.read_text()
        assert old in text, f"{old!r} is not in {script}"
        path.write_text(text.replace(old, new))

    def bash(self, script: str, folder: Path | None = None, **variables: str):
        """Run a script without a scheduler, with these variables and no others of one."""
        known = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.folder), "USER": "someone"}
        command = ["bash", *script.split()]
        return subprocess.run(
            command,
            cwd=folder or self.folder,
            env=known | variables,
            capture_output=True,
            text=True,
        )

    def in_slurm(self, script: str, nodes: str = "node1", **variables: str):
        """Run a script as a job of Slurm would, but with an `srun` that prints what it is given."""
        self.command("scontrol", f"printf '%s\\n' {nodes}")
        self.command("srun", 'printf "<%s>" "$@"')
        job = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "x", "SLURM_CPUS_ON_NODE": "4"}
        job["SLURM_SUBMIT_DIR"] = str(self.folder)
        return self.bash(script, **job | variables)


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def assert_refused(result, words: str) -> None:
    """It has said one sentence, and nothing was made."""
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1, result.stderr
    assert re.search(words, result.stderr), result.stderr


@each_script
def test_bash_by_mistake_is_told_what_to_type(desk, script):
    command = SUBMIT[script.suffix]
    nowhere = r"is a job script, and there is no (sbatch|qsub) on this machine: use a login node"
    assert_refused(desk.bash(script.name, PATH=path_without_schedulers(desk)), nowhere)
    desk.command(command, "exit 99")
    assert_refused(desk.bash(script.name), f"no job is running: type  {command} {script.name}\n")
    assert_refused(
        desk.bash(f"job_scripts/{script.name}", folder=desk.folder.parent),
        "submit from job_scripts",
    )
    assert not (desk.folder / "runs").exists()


def path_without_schedulers(desk: Desk) -> str:
    """A PATH with what the scripts use, for this machine may have Slurm."""
    tools = desk.folder.parent / "tools"
    tools.mkdir()
    for tool in ("basename", "dirname", "bash"):
        (tools / tool).symlink_to(shutil.which(tool))
    return str(tools)


def start_variables(result) -> dict[str, str]:
    """What `srun` was told to start on each node."""
    words = re.findall(r"<(.*?)>", result.stdout)
    assert result.returncode == 0 and words, (result.returncode, result.stdout, result.stderr)
    names = ["folder", "nodes", "ranks", "gpus", "threads", "endpoint", "job", "program"]
    begin = words.index("node") + 2
    values = dict(zip(names, words[begin:], strict=False))
    return values | {"srun": " ".join(words[:begin]), "options": " ".join(words[begin + 8 :])}


@pytest.mark.parametrize(
    ("variables", "ranks", "threads"),
    [
        ({"SLURM_GPUS_ON_NODE": "2"}, "2", "2"),
        ({"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "0,1,2"}, "2", "2"),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2"}, "3", "1"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1f,GPU-2a"}, "2", "2"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "4", "1"),  # none: the cores
        ({"CUDA_VISIBLE_DEVICES": "-1"}, "4", "1"),
        ({"SLURM_GPUS_ON_NODE": "0"}, "4", "1"),
        ({"SLURM_CPUS_ON_NODE": "1"}, "1", "1"),
        ({"SLURM_CPUS_ON_NODE": "96"}, "8", "12"),
        ({"SLURM_GPUS_ON_NODE": "8", "RANKS_PER_NODE": "3"}, "3", "1"),
        ({"SLURM_CPUS_ON_NODE": "9", "RANKS_PER_NODE": "4"}, "4", "2"),
        ({"RANKS_PER_NODE": "16"}, "16", "1"),
    ],
)
def test_ranks_and_threads_come_from_what_the_job_has(desk, variables, ranks, threads):
    desk.command("nvidia-smi", "exit 9")  # as on a node without a driver
    line = start_variables(
        desk.in_slurm("distributed_data_parallel_nodes.slurm", "node1 node2", **variables)
    )
    assert (line["nodes"], line["ranks"], line["threads"]) == ("2", ranks, threads)
    assert line["folder"].endswith(f"/runs/distributed_data_parallel-{2 * int(ranks)}-ranks-17")
    assert Path(line["folder"]).is_dir()


def test_gpus_are_counted_where_the_scheduler_says_nothing(desk):
    desk.command("nvidia-smi", "echo 'GPU 0: A (UUID: x)'; echo 'GPU 1: A (UUID: y)'")
    assert start_variables(desk.in_slurm("fully_sharded.slurm"))["ranks"] == "2"


def test_the_first_node_is_the_head_and_no_port_is_fixed(desk):
    lines = [
        start_variables(desk.in_slurm("fully_sharded_nodes.slurm", "zebra-2 ant-1"))
        for _ in range(4)
    ]
    heads, ports = zip(*(line["endpoint"].split(":") for line in lines), strict=True)
    assert set(heads) == {"zebra-2"}
    assert len(set(ports)) > 1  # four times the same: one in 12,000 to the power of three
    assert all(20_000 <= int(port) < 32_000 for port in ports)


def test_options_reach_the_program(desk):
    line = start_variables(
        desk.in_slurm("distributed_data_parallel.slurm", EPOCHS="7", WIDTH="128")
    )
    program = ROOT / "src/ddp_workbook/chapters/distributed_data_parallel.py"
    assert Path(line["program"]).resolve() == program
    results = desk.folder / "results.csv"
    options = f"--results {results} --epochs 7 --batch-size 64 --width 128 --depth 1"
    assert line["options"] == options


@pytest.mark.parametrize(
    ("variables", "python", "words"),
    [
        (
            {"RANKS_PER_NODE": "0"},
            "",
            "RANKS_PER_NODE=0: it is the number of ranks on each",
        ),
        ({"RANKS_PER_NODE": "two"}, "", "RANKS_PER_NODE=two: it is the number of ranks"),
        (
            {},
            "/no/python",
            r"no /no/python on \S+: type  make setup in \S+, or set PYTHON",
        ),
        ({}, "false", "false on .* has no torch or no ddp_workbook: set PYTHON in site.sh"),
    ],
)
def test_what_cannot_start_is_refused(desk, variables, python, words):
    """No ranks; no environment; one without torch."""
    if python:
        (desk.folder / "site.sh").write_text(f"PYTHON={python}\n")
    assert_refused(desk.in_slurm("distributed_data_parallel.slurm", **variables), words)


@pytest.mark.parametrize(
    ("text", "words"),
    {
        "PYTHON=python\nmodule laod torch\ntrue\n": "site.sh failed on .* at: module laod torch",
        "if true\nPYTHON=python\n": r"^site.sh: line \d: syntax error.*: fix it, or start again",
        "source /no/activate\nPYTHON=python": "site.sh failed on .* at: source /no/activate",
    }.items(),
)
def test_an_error_in_site_sh_is_named(desk, text, words):
    (desk.folder / "site.sh").write_text(text)
    result = desk.in_slurm("distributed_data_parallel.slurm")
    assert (result.returncode, result.stdout) == (2, "")
    assert re.search(words, result.stderr.splitlines()[-1]), result.stderr


def test_site_sh_chooses_the_python(desk):
    """A PYTHON of the shell that submits is not meant; and activating prints errors of its own."""
    (desk.folder / "site.sh").write_text(f"false || true\nPYTHON={sys.executable}\n")
    (desk.folder.parent / ".venv").unlink()
    start_variables(desk.in_slurm("distributed_data_parallel.slurm", PYTHON="/no/python"))


def test_a_program_of_ones_own_and_one_that_is_not_there(desk):
    (desk.folder / "mine.py").write_text("")
    old = "start_ranks distributed_data_parallel "
    desk.change("distributed_data_parallel.slurm", old, "start_ranks mine.py ")
    line = start_variables(desk.in_slurm("distributed_data_parallel.slurm"))
    assert line["program"] == str(desk.folder / "mine.py")
    assert line["folder"].endswith("/runs/mine-4-ranks-17")
    desk.change("distributed_data_parallel.slurm", "mine.py", "yours.py")
    words = "There is no program yours.py: neither a chapter's nor a file"
    assert_refused(desk.in_slurm("distributed_data_parallel.slurm"), words)


@pytest.mark.push("job scripts")
def test_a_job_trains_in_a_folder_whose_name_has_a_blank(tmp_path):
    """On one node there is nothing that only a cluster could show: `srun` starts torchrun here."""
    desk = Desk(tmp_path / "my course")
    desk.command("scontrol", "hostname")
    desk.command("srun", 'while [ $1 != /bin/bash ]; do shift; done; exec "$@"')
    job = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "x", "SLURM_SUBMIT_DIR": str(desk.folder)}
    result = desk.bash("requeue.slurm", **job, EPOCHS="1", SLURM_CPUS_ON_NODE="1")
    assert result.returncode == 0, result.stderr
    assert "[rank 0] rank 0: host " in result.stdout
    (row,) = read_results(desk.folder / "results.csv").to_dict("records")
    assert (row["ranks"], row["epochs"], row["job"]) == (1, 1, "17")
    assert len(list(desk.folder.glob("runs/many_machines-1-ranks-17/*/*/attempt_0/*/*.log"))) == 2


def test_nodes_that_are_not_alike_are_refused(desk):
    """A rank on NCCL and a rank on gloo would wait for each other."""
    node = "start_ranks.sh node slurm folder 2 2 2 1 head:20000 17 program.py"
    words = "has 1 GPUs for this job, and head has 2: ask for nodes that are alike"
    assert_refused(desk.bash(node, SLURM_GPUS_ON_NODE="1"), words)


def test_the_exit_code_of_srun_is_the_jobs(desk):
    desk.command("srun", "exit 7")
    desk.command("scontrol", "echo node1")
    job = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "x", "SLURM_SUBMIT_DIR": str(desk.folder)}
    assert desk.bash("distributed_data_parallel.slurm", **job).returncode == 7


@pytest.mark.parametrize(
    ("pbsdsh", "code"),
    {
        'for n in 1 2; do echo 0 > "$codes/node$n"; done; exit 1': 0,  # its own says nothing
        'echo 0 > "$codes/node1"; echo 3 > "$codes/node2"': 3,
        'echo 0 > "$codes/node1"': 1,  # node2 was never there
    }.items(),
    ids=["all well", "one has failed", "one is missing"],
)
def test_under_pbs_each_node_gives_its_own_exit_code(desk, pbsdsh, code):
    """OpenPBS's pbsdsh ends with 0, whatever its commands end with."""
    desk.command("pbsdsh", f'codes="$7/exit-codes"; {pbsdsh}')
    nodes = desk.folder / "nodes"
    nodes.write_text("node1\nnode1\nnode2\n")
    job = {"PBS_JOBID": "17.server", "PBS_NODEFILE": str(nodes), "PBS_O_WORKDIR": str(desk.folder)}
    result = desk.bash("distributed_data_parallel_nodes.pbs", **job, NCPUS="2", LATE="1")
    assert result.returncode == code, result.stderr
    assert "Job 17: 4 ranks on node1 node2" in result.stdout


# The scaling study


def study(desk: Desk, submit: str, **variables: str) -> tuple[list[str], str]:
    """The command lines that it submits, and what it says."""
    desk.command(submit, 'printf "%s " "$@" >> lines; echo >> lines; echo "$(wc -l < lines)"')
    result = desk.bash(f"scaling_study.sh {submit}", **variables)
    assert (result.returncode, result.stderr) == (0, "")
    return (desk.folder / "lines").read_text().splitlines(), result.stdout


def test_the_study_submits_strong_and_weak_scaling_one_after_the_other(desk):
    lines, output = study(desk, "sbatch")
    requests = [
        re.search(r"--nodes=(\d) --gpus-per-node=(\d).*BATCH_SIZE=(\d+)", x).groups() for x in lines
    ]
    strong = [("1", "1", "512"), ("1", "2", "512"), ("1", "4", "512"), ("2", "4", "512")]
    assert requests == [*strong, ("1", "1", "64"), ("1", "2", "128"), ("1", "4", "256")]
    after = [re.findall(r"afterany:(\d+)", line) for line in lines]
    assert after == [[], ["1"], ["2"], ["3"], ["4"], ["5"], ["6"]]
    assert "job 4: 8 ranks on 2 nodes, a batch of 512 rows" in output


def test_the_study_by_qsub_asks_in_the_words_of_pbs(desk):
    lines, _ = study(desk, "qsub", RANKS="1 8", GPUS_PER_NODE="4")
    assert "-l select=2:ncpus=4:ngpus=4:mpiprocs=1 -v RANKS_PER_NODE=4," in lines[1]
    assert "-W depend=afterany:1 distributed_data_parallel_nodes.pbs" in lines[1]
    requests = [parse_qsub([line.strip().rpartition(" ")[0]]) for line in lines]
    assert [(one.nodes, one.gpus) for one in requests[:2]] == [(1, 1), (2, 4)]


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        ("", {"RANKS": "1 0"}, "RANKS are whole numbers"),
        ("", {"GPUS_PER_NODE": "-1"}, "GPUS_PER_NODE, .* are whole numbers"),
        (
            "",
            {"RANKS": "5", "GPUS_PER_NODE": "4"},
            "5 ranks are not the same number on each of 2 nodes",
        ),
        ("bsub", {}, "bsub: give sbatch or qsub, or nothing"),
        ("", {"PATH": ""}, "There is no qsub on this machine"),
    ],
)
def test_the_study_refuses(desk, arguments, variables, words):
    desk.command("sbatch", "echo 1")
    if "PATH" in variables:
        variables = {"PATH": path_without_schedulers(desk)}
    assert_refused(desk.bash(f"scaling_study.sh {arguments}", **variables), words)


def test_the_study_stops_at_the_first_refusal(desk):
    desk.command("sbatch", "echo 'invalid partition' >&2; exit 1")
    result = desk.bash("scaling_study.sh")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith("sbatch has refused 1 ranks on 1 nodes.")


# On a real Slurm

SEVERAL = "distributed_data_parallel_nodes"
# Each rank compares its own result with one process', in the way of the tests of chapter 02.
ON_EVERY_RANK = """
import os
from pathlib import Path
from ddp_workbook.chapters import distributed_data_parallel, single_process
from ddp_workbook.chapters.training_run import run

def train(epochs=1, batch_size=64, width=64, depth=1):
    trained = distributed_data_parallel.train(epochs, batch_size, width, depth)
    alone = single_process.train(epochs, batch_size, width, depth).weights
    off = max(float((trained.weights[name] - alone[name]).abs().max()) for name in alone)
    Path(__file__).with_name(f"rank-{os.environ['RANK']}").write_text(str(off < 1e-5))
    return trained

if __name__ == "__main__":
    run(train)
"""
RANK_1_FAILS = """
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 1:
        raise RuntimeError("rank 1 has had enough")
    dist.barrier()

main()
"""


class Site:
    """A cluster, and a checkout that its nodes share."""

    def __init__(self, slurm: Slurm, top: Path) -> None:
        self.slurm, self.desk = slurm, Desk(top)
        self.folder = self.desk.folder

    def type(self, line: str) -> str:
        """Type a line of the README, in the folder of the checkout; what it prints."""
        command = ["bash", "-c", f"cd job_scripts; {line}"]
        result = self.slurm.run(command, cwd=self.folder.parent, env={"USER": "root"})
        assert result.returncode == 0, (line, result.stdout, result.stderr)
        return result.stdout

    def submit(self, line: str) -> str:
        """Type a line that submits a job; its id."""
        return re.findall(r"\d+", self.type(line))[-1]

    def read(self, job: str, scheduler: str) -> str:
        """Read the log of a job that has ended, as the README says."""
        return self.type(command_of("read its log", scheduler, job).replace("tail -f", "cat"))

    def ends(self, job: str, state: str) -> str:
        """Wait for the job's end, which must be this one; all that it printed."""
        ended = self.slurm.wait(job, timeout=300)
        assert ended == state, (ended, self.slurm.output(job))
        return self.slurm.output(job)

    def row(self, job: str) -> dict:
        """The row of results that a job has left."""
        table = read_results(self.folder / "results.csv")
        (row,) = table[table["job"] == job].to_dict("records")
        return row

    @contextlib.contextmanager
    def of_pbs(self) -> Iterator[None]:
        """Give jobs submitted by `qsub -v` what PBS would: Slurm's qsub passes on nothing else."""
        environment = self.slurm.environment | {"SLURM_EXPORT_ENV": "ALL"}
        names = ("PATH", "SLURM_CONF", "SLURM_EXPORT_ENV")
        file = self.folder / "site.sh"
        file.write_text("\n".join(f"export {name}={environment[name]}" for name in names))
        yield
        file.unlink()

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until this holds; fail after five minutes."""
        end = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < end, self.slurm.run(["squeue", "--states=all"]).stdout
            time.sleep(0.2)

    def is_empty(self) -> bool:
        """Whether no process of a job is left on any node."""
        return wait_until(lambda: self.slurm.processes() == [])


def command_of(action: str, scheduler: str, job: str) -> str:
    """What the README's table says for an action, with this job's number."""
    row = next(line for line in README.splitlines() if line.startswith(f"| {action} |"))
    commands = re.findall(r"`(.*?)`", row)
    return commands[scheduler == "PBS"].replace("17", job)


def submit_line(script: str) -> str:
    """The README's line that submits a script, with this one's name."""
    command = SUBMIT[Path(script).suffix]
    (line,) = re.findall(rf"^{command} \S+", README, re.MULTILINE)
    return line.replace(line.split()[1], script)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Two nodes with four pretend GPUs each."""
    with Slurm(nodes=2) as slurm:
        yield Site(slurm, tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def alone():
    """The mean loss of the last of three epochs in one process."""
    losses = single_process.train(epochs=3).losses
    return statistics.mean(losses[-len(losses) // 3 :])


def check_row(row: dict, hosts: str, ranks: int, loss: float) -> None:
    """A job's row says where it ran, and its loss equals that of one process."""
    assert (row["hosts"], row["ranks"], row["epochs"]) == (hosts, ranks, 3)
    assert row["loss"] == pytest.approx(loss, rel=1e-3)


@pytest.mark.cluster
@pytest.mark.parametrize("suffix", [".slurm", ".pbs"])
def test_a_job_by_typing_what_the_readme_says(site, alone, suffix):
    job = site.submit(submit_line(f"distributed_data_parallel{suffix}"))
    site.ends(job, "COMPLETED")
    log = site.read(job, "PBS" if suffix == ".pbs" else "Slurm")
    assert f"Job {job}: 2 ranks on node1" in log
    assert re.search(r"\[rank 0\] epoch 3: loss", log)
    check_row(site.row(job), "node1", 2, alone)
    logs = list(site.folder.glob(f"runs/distributed_data_parallel-2-ranks-{job}/node1/*/*/*/*.log"))
    assert len(logs) == 4  # two ranks, standard output and error


@pytest.mark.cluster
def test_every_rank_of_two_nodes_has_the_result_of_one_process(site, tmp_path):
    program = tmp_path / "on_every_rank.py"
    program.write_text(ON_EVERY_RANK)
    old = f"start_ranks {SEVERAL.removesuffix('_nodes')} "
    site.desk.change(f"{SEVERAL}.slurm", old, f"start_ranks {program} ")
    job = site.submit(f"RANKS_PER_NODE=1 EPOCHS=1 sbatch {SEVERAL}.slurm")
    site.desk.change(f"{SEVERAL}.slurm", f"start_ranks {program} ", old)  # sbatch has its copy
    site.ends(job, "COMPLETED")
    assert [(tmp_path / f"rank-{rank}").read_text() for rank in range(2)] == ["True"] * 2
    assert site.row(job)["hosts"] == "node1 node2"


@pytest.mark.cluster
@pytest.mark.parametrize(
    "suffix",
    [pytest.param(".slurm", marks=pytest.mark.release("a job of Slurm that fails")), ".pbs"],
)
def test_a_failing_rank_fails_the_job_and_is_named_last(site, tmp_path, suffix):
    """It runs on the second node; the first node's torchrun takes another rank for the culprit."""
    program = tmp_path / "fails.py"
    program.write_text(RANK_1_FAILS)
    script = f"fails{suffix}"
    shutil.copy(site.folder / f"{SEVERAL}{suffix}", site.folder / script)
    site.desk.change(script, "start_ranks distributed_data_parallel ", f"start_ranks {program} ")
    # LATE: the first node prints its report, however busy the machine is.
    site.desk.change(script, "\ncd ", "\nRANKS_PER_NODE=1 LATE=300\ncd ")
    job = site.submit(f"{SUBMIT[suffix]} {script}")
    log = site.ends(job, "FAILED")
    last = log.strip().splitlines()[-2:]
    assert last[0].endswith(" on node2: RuntimeError: rank 1 has had enough"), log
    assert "RuntimeError: rank 1 has had enough" in Path(last[1].split(": ")[1]).read_text()
    assert "Root Cause (first observed failure)" in log
    assert site.is_empty()


@pytest.mark.cluster
@pytest.mark.parametrize(
    "suffix", [".slurm", pytest.param(".pbs", marks=pytest.mark.release("a job of PBS is deleted"))]
)
def test_a_job_that_is_stopped_leaves_nothing(site, suffix):
    scheduler = "PBS" if suffix == ".pbs" else "Slurm"
    line = submit_line(f"{SEVERAL}{suffix}")
    job = site.submit(f"RANKS_PER_NODE=1 EPOCHS=100000 {line}")
    assert job in site.type(command_of("watch a job", scheduler, job))
    run = site.folder / "runs" / f"distributed_data_parallel-2-ranks-{job}"
    # Ranks have begun on both nodes.
    site.until(lambda: len(list(run.glob("*/*/*/*/stderr.log"))) == 2)
    site.type(command_of("stop it", scheduler, job))
    assert site.slurm.wait(job, timeout=300) == "CANCELLED"
    assert site.is_empty()


@pytest.mark.cluster
def test_a_requeued_job_goes_on_where_it_stopped(site, alone):
    job = site.submit("RANKS_PER_NODE=1 EPOCHS=3 sbatch requeue.slurm")
    site.until(lambda: "Job " in site.slurm.output(job))
    # What --signal=B:USR1@120 does two minutes before the end of the time.
    site.type(f"scancel --batch --signal=USR1 {job}")
    site.until(lambda: site.slurm.job(job)["Restarts"] == "1")
    log = site.ends(job, "COMPLETED")
    assert "Stopped after epoch 1" in log
    row = site.row(job)  # one: a run that has stopped leaves none
    check_row(row, "node1", 1, alone)
    assert row["steps"] < 87  # of three epochs
    assert site.slurm.job(job)["Restarts"] == "1"  # a training that is done does not come again


@pytest.mark.cluster
@pytest.mark.release("a job of PBS submits its successor")
def test_under_pbs_a_job_submits_its_successor(site, alone):
    """Each job is asked to stop at once, does an epoch, and hands on."""
    with site.of_pbs():
        job = site.submit("qsub -v EPOCHS=3,STOP_AFTER=0 requeue.pbs")
        for _ in range(2):
            log = site.ends(job, "COMPLETED")
            assert "Stopped after epoch" in log
            job = re.findall(r"^\d+", log, re.MULTILINE)[-1]
        log = site.ends(job, "COMPLETED")
    assert "Stopped" not in log
    check_row(site.row(job), "node1", 2, alone)


@pytest.mark.cluster
@pytest.mark.release("a job is stopped by its time limit's signal")
def test_slurm_sends_the_signal_before_the_time_is_over(site):
    site.desk.change("requeue.slurm", "--time=00:10:00", "--time=00:01:00")
    site.desk.change("requeue.slurm", "USR1@120", "USR1@45")
    job = site.submit("EPOCHS=100000 sbatch requeue.slurm")
    site.until(lambda: site.slurm.job(job)["Restarts"] == "1")
    site.type(f"scancel {job}")
    assert "Stopped after epoch" in site.slurm.output(job)


@pytest.mark.cluster
@pytest.mark.release("a job that fails before its time is over")
def test_a_job_that_fails_is_not_requeued(site):
    job = site.submit("EPOCHS=3 WIDTH=0 sbatch requeue.slurm")
    log = site.ends(job, "FAILED")
    assert "--width: '0' is not a whole number from 1 on" in log
    assert site.slurm.job(job)["Restarts"] == "0"


@pytest.mark.cluster
@pytest.mark.release("all job scripts, as typed")
@pytest.mark.parametrize("script", [path.name for path in SCRIPTS if "requeue" not in path.name])
def test_each_script_runs_as_it_is(site, script):
    job = site.submit(submit_line(script))
    site.ends(job, "COMPLETED")
    row = site.row(job)
    nodes = 2 if "nodes" in script else 1
    assert row["nodes"] == nodes
    assert row["ranks"] == (1 if script.startswith("data_parallel") else 2 * nodes)
    assert site.is_empty()


@pytest.mark.cluster
@pytest.mark.release("a scaling study")
@pytest.mark.parametrize("submit", ["sbatch", "qsub"])
def test_a_scaling_study_fills_one_table(site, submit):
    sizes = "GPUS_PER_NODE=1 RANKS='1 2' BATCH_SIZE=128 WIDTH=32 DEPTH=1 EPOCHS=1"
    with site.of_pbs():
        output = site.type(f"{sizes} bash scaling_study.sh {submit}")
        jobs = re.findall(r"^job (\d+)", output, re.MULTILINE)
        for job in jobs:
            site.ends(job, "COMPLETED")
    rows = [site.row(job) for job in jobs]
    assert [(row["ranks"], row["nodes"], row["batch_size"]) for row in rows] == [
        (1, 1, 128),
        (2, 2, 128),
        (1, 1, 64),
    ]


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("gpus", "words"),
    [(0, "Invalid generic resource"), (4, "Requested node configuration is not available")],
)
@pytest.mark.release("GPUs that a cluster does not have")
def test_the_readme_has_what_sbatch_says_to_too_many_gpus(tmp_path, gpus, words):
    with Slurm(nodes=1, gpus=gpus) as slurm:
        result = slurm.run(["sbatch", "--gpus-per-node=8", "--wrap", "true"], cwd=tmp_path)
    assert result.returncode != 0
    assert words in result.stderr and f"`{words}`" in " ".join(README.split())


@pytest.mark.cluster
@pytest.mark.release("clusters that are set up in another way")
@pytest.mark.parametrize(
    ("nodes", "partition", "gpus", "changes", "ranks"),
    [
        (1, "a100", 1, {"--gpus-per-node=2": "--gpus-per-node=1"}, 1),
        (1, "cpu", 0, {"#SBATCH --gpus-per-node=2\n": ""}, 2),
        (4, "long", 0, {"#SBATCH --gpus-per-node=2\n": "", "--nodes=2": "--nodes=4"}, 8),
        (4, "gpu", 2, {"--nodes=2": "--nodes=3"}, 6),
    ],
)
def test_on_another_cluster(tmp_path, alone, nodes, partition, gpus, changes, ranks):
    """With the lines below `change me` as such a site needs them, partition and time among them."""
    stem = SEVERAL if nodes > 1 else "distributed_data_parallel"
    partition_line = {"##SBATCH --partition=gpu": f"#SBATCH --partition={partition}"}
    time_line = {"--time=00:10:00": "--time=00:05:00"}
    with Slurm(nodes=nodes, partition=partition, gpus=gpus) as slurm:
        site = Site(slurm, tmp_path)
        for old, new in (changes | partition_line | time_line).items():
            site.desk.change(f"{stem}.slurm", old, new)
        job = site.submit(submit_line(f"{stem}.slurm"))
        site.ends(job, "COMPLETED")
        assert slurm.job(job)["Partition"] == partition
        row = site.row(job)
        check_row(row, row["hosts"], ranks, alone)
        assert site.is_empty()
