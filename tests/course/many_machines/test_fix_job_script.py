"""fix_job_script: directives are read, and commands start, as a scheduler would have it."""

import os
import re
import subprocess
from pathlib import Path

import psutil
import pytest

from ddp_workbook.exercises.many_machines import fix_job_script as exercise
from ddp_workbook.judging import directives, job_scripts
from ddp_workbook.judging.catalogue import Exercise
from ddp_workbook.judging.directives import InvalidScript, JobRequest
from tests.clusters.slurm import Slurm
from tests.leaks import wait_until

SLURM, PBS = map(exercise.without_margin, exercise.fix_job_script())
HALF_AN_HOUR = 30 * 60


def test_there_are_three_faults_for_slurm_and_two_for_pbs():
    """The reader is told of all of them at once, each by a row of the table."""
    names: dict = {}
    exec(Exercise("fix_job_script").stub, names)
    rows = []
    for scheduler, text in zip(("slurm", "pbs"), names["fix_job_script"](), strict=True):
        known = exercise.facts_of(scheduler, text)
        wrong = {fact for fact, value in known.items() if value != exercise.REQUIRED[fact]}
        rows.append([n for n, row in enumerate(exercise.FACTS_BY_HINT.values()) if {*row} & wrong])
    assert rows == [[1, 3, 8, 9], [9, 13]]  # the GPUs (3) are missing as their line is not read (1)


def test_the_status_of_a_script_for_pbs_is_not_looked_at():
    """OpenPBS's pbsdsh returns 0 whatever its commands return, and so does its stand-in."""
    run = job_scripts.run_script("pbs", PBS, JobRequest(nodes=2, gpus=4), 1, fails=True)
    assert (len(run.starts), run.status) == (2, 0)


UNUSUAL = {  # scripts that are as right as the solution
    "options in other forms": (
        SLURM.replace("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1", "#SBATCH -N2 -n 2")
        .replace("--gpus-per-node=4", "--gres=gpu:a100:4")
        .replace("--time=00:30:00", "-t 30  # minutes")
    ),
    "a static rendezvous by hand": SLURM.replace(
        "--rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=$head:$port",
        "--node-rank=$SLURM_NODEID --master-addr=$head --master-port=$port",
    ),
    "nodes by another command": SLURM.replace(
        '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)', "$(hostname)"
    ),
    "ranks for the GPUs there are": SLURM.replace("--nproc-per-node=4", "--nproc-per-node=gpu"),
    "comments that look like directives": SLURM.replace(
        "#SBATCH --time", "##SBATCH --time=01:00:00\n# SBATCH --nodes=4\n#SBATCH --time"
    ),
    "the program by its path": PBS.replace("cd '$PBS_O_WORKDIR' && ", "").replace(
        "train.py", "'$PBS_O_WORKDIR'/train.py"
    ),
    "ssh to each node": PBS.replace(
        'pbsdsh -- bash -lc "cd', 'for node in $(sort -u "$PBS_NODEFILE"); do ssh "$node" "cd'
    ).replace('--epochs 5"', '--epochs 5" &\ndone\nwait'),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_script_is_right(name):
    text = UNUSUAL[name]
    assert text not in (SLURM, PBS)
    scheduler = "slurm" if "#SBATCH" in text else "pbs"
    assert exercise.facts_of(scheduler, text) == exercise.REQUIRED


# Directives


TIMES = {
    directives.parse_slurm_time: {
        "30": 1800, "30:00": 1800, "0:30:00": 1800, "0-0:30": 1800,
        "1-12": 36 * 3600, "2-3:04:05": 183845,
    },
    directives.parse_pbs_time: {"30": 30, "30:00": 1800, "00:30:00": 1800, "1:2:3": 3723},
}  # fmt: skip


@pytest.mark.parametrize("read", TIMES)
def test_a_time(read):
    assert {text: read(text) for text in TIMES[read]} == TIMES[read]


@pytest.mark.parametrize("read", [directives.parse_slurm_time, directives.parse_pbs_time])
@pytest.mark.parametrize("text", ["30m", "half", "1:2:3:4"])
def test_a_time_that_nobody_understands_is_refused(read, text):
    with pytest.raises(InvalidScript):
        read(text)


@pytest.mark.parametrize(
    "lines",
    [
        ["--nodes=2 --gpus-per-node=4"],
        ["-N2", "--gpus-per-node a100:4"],
        ["--nodes 2-2  # both", "--gres=gpu:4"],
        ["-N 2", "--gres=lustre,gpu:a100:4"],
        ["-N 2", "-G 8"],
        ["-n 2 --ntasks-per-node=1", "--gpus-per-task=4"],
        ["--nodes=2", "--ntasks-per-node=4", "--gpus-per-task=1"],
    ],
)
def test_spellings_of_two_nodes_with_four_gpus_for_slurm(lines):
    request = directives.parse_sbatch(lines)
    assert (request.nodes, request.gpus) == (2, 4)


@pytest.mark.parametrize(
    "lines",
    [
        ["-l select=2:ncpus=8:ngpus=4", "-j oe"],
        ["-lselect=2:ngpus=4:mpiprocs=1,walltime=1:00"],
        ["-l select=1:ngpus=4+1:ngpus=4:mem=8gb", "-l place=scatter"],
    ],
)
def test_spellings_of_two_nodes_with_four_gpus_for_pbs(lines):
    request = directives.parse_qsub(lines)
    assert (request.nodes, request.gpus) == (2, 4)


@pytest.mark.parametrize(
    ("read", "line"),
    [
        *((directives.parse_sbatch, line) for line in ("--gpu=4", "-N two", "-t 30m")),
        *((directives.parse_qsub, f"-l {one}") for one in ("select=2 -l ngpus=4", "walltime=h")),
    ],
)
def test_what_a_scheduler_refuses(read, line):
    with pytest.raises(InvalidScript):
        read([line])


@pytest.mark.parametrize(
    ("place", "scattered"),
    {"scatter": True, "scatter:excl": True, "vscatter": True, "pack": False, "excl": False}.items(),
)
def test_a_placement_that_keeps_chunks_apart(place, scattered):
    lines = ["-l select=2:ncpus=8", f"-l place={place}"]
    assert directives.parse_qsub(lines).scattered is scattered


def test_which_lines_are_directives():
    """Of those that are not, only what would ask for something else is kept."""
    lines = ["#SBATCH -N 2", "##SBATCH -G 8", " #SBATCH -t 5", "# SBATCH -N 3", "#SBATCHED -G 8"]
    late = ["true", "#sbatch --gpus-per-node=4", "#SBATCH --time=30", "#SBATCH --half"]
    request = directives.parse_request(
        "slurm", "\n".join(["#!/bin/bash", "# one", "", *lines, *late])
    )
    assert (request.nodes, request.gpus, request.seconds) == (2, 0, 0)
    assert request.unread_lines == [lines[1], lines[2].strip(), *late[1:3]]


# Playing


def test_nothing_is_left_of_a_play(tmp_path, monkeypatch):
    """Neither its folder, nor what the script has started and not waited for."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    marker = "987.654321"
    real = "$(type -P -a sleep | tail -n 1)"  # behind the one that stands in
    text = f"#!/bin/bash\n{real} {marker} &\n"
    run = job_scripts.run_script("slurm", text, JobRequest(nodes=2), 1, fails=False)
    assert run.status == 0
    assert wait_until(lambda: not sleeping(marker))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "loop, limit",  # the first is ended by its processor time, however long that takes
    [("while true; do :; done", 60), ("until [ -e x ]; do sleep 9; done", 1.5)],
)
def test_a_script_without_an_end_is_ended(loop, limit, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(job_scripts, "TIMEOUT_S", limit)
    run = job_scripts.run_script(
        "slurm", f"#!/bin/bash\n{loop}\n", JobRequest(nodes=2), 1, fails=False
    )
    assert run.status is None
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_player_that_was_killed_is_swept_away(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    process = subprocess.Popen(["true"])
    process.wait()
    (tmp_path / f"{job_scripts.FOLDER_PREFIX}{process.pid}-a" / "bin").mkdir(parents=True)
    (tmp_path / f"{job_scripts.FOLDER_PREFIX}{os.getpid()}-b").mkdir()
    job_scripts.remove_stale_folders()
    assert [path.name for path in tmp_path.iterdir()] == [
        f"{job_scripts.FOLDER_PREFIX}{os.getpid()}-b"
    ]


def sleeping(marker: str) -> list[psutil.Process]:
    """Processes with this word in their command."""
    every = psutil.process_iter(["cmdline"])
    return [one for one in every if marker in (one.info["cmdline"] or [])]


# Against a real Slurm

NOTES = """#!/bin/bash
{{ hostname; pwd; printf '%s\\n' "$@"; }} > "$(mktemp "{notes}/XXXXXX")"
[ -z "${{FAILS:-}}" ] || [ "$(hostname)" != node2 ]
"""
SRUN = r"""srun --cpus-per-task=32 bash -c 'torchrun --nnodes=$SLURM_NNODES --nproc-per-node=4 \
    --rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=$head:$port \
    train.py --epochs 5'"""
assert SRUN in SLURM


def with_commands(*commands: str) -> str:
    """The script with these in place of its srun."""
    return SLURM.replace(SRUN, "\n".join(commands))


SCRIPTS = {
    "solution": SLURM,
    "four tasks": SLURM.replace("--ntasks-per-node=1", "--ntasks-per-node=4"),
    "four tasks, one asked of srun": SLURM.replace("per-node=1", "per-node=4").replace(
        "srun ", "srun --ntasks-per-node=1 "
    ),
    "four tasks, two asked of srun": SLURM.replace("per-node=1", "per-node=4").replace(
        "srun ", "srun --nodes=2 -n 2 "
    ),
    "nothing said of tasks": SLURM.replace("#SBATCH --ntasks-per-node=1\n", ""),
    "without srun": SLURM.replace("srun --cpus-per-task=32 bash", "bash"),
    "tee": SLURM.replace(SRUN, f"{SRUN} | tee digits.log"),
    "tee with pipefail": SLURM.replace(SRUN, f"set -o pipefail\n{SRUN} | tee digits.log"),
    "all sorts of names": with_commands(
        'ip=$(srun -N1 -n1 -w "$head" hostname --ip-address)',
        "srun bash -c 'torchrun $(hostname) $HOSTNAME $SLURMD_NODENAME $SLURM_NODEID $SLURM_PROCID "
        "$SLURM_LAUNCH_NODE_IPADDR '$ip",
        "srun -l -u --export=ALL torchrun $SLURM_NTASKS $SLURM_NTASKS_PER_NODE $SLURM_GPUS_ON_NODE",
    ),
}


@pytest.mark.cluster
@pytest.mark.release("job scripts as an exercise plays them, beside a real Slurm")
def test_a_played_script_starts_what_slurm_starts(tmp_path):
    """The same commands on the same nodes, in the same folder, with the same words and status."""
    with Slurm(nodes=2, gpus=4, cpus=128) as slurm:
        jobs = [
            (name, text, fails, submit_job(slurm, tmp_path / f"{name}{fails}", text, fails))
            for name, text in SCRIPTS.items()
            for fails in (False, True)
        ]
        differ = {}
        for name, text, fails, job in jobs:
            completed = slurm.wait(job, timeout=300) == "COMPLETED"
            request = directives.parse_request("slurm", text)
            run = job_scripts.run_script("slurm", text, request, int(job), fails)
            real = slurm_starts(slurm, tmp_path / f"{name}{fails}")
            one, other = (real, completed), (script_starts(run), run.status == 0)
            if one != other:
                differ[name, fails] = (one, other, slurm.output(job))
            shown = slurm.job(job)
            assert shown["NumNodes"] == f"{request.nodes}"
            assert shown["TimeLimit"] == "00:30:00" and request.seconds == HALF_AN_HOUR
        assert differ == {}


def submit_job(slurm: Slurm, folder: Path, text: str, fails: bool) -> str:
    """A job from this folder, whose torchrun only notes how it was started."""
    (folder / "bin").mkdir(parents=True)
    (folder / "notes").mkdir()
    command(folder / "bin" / "torchrun", NOTES.format(notes=folder / "notes"))
    command(folder / "bin" / "module", "#!/bin/bash\n")
    (folder / "job.slurm").write_text(text)
    path = os.pathsep.join([f"{folder}/bin", slurm.environment["PATH"]])
    return slurm.submit(
        "job.slurm", folder=folder, env={"PATH": path, "FAILS": "yes" if fails else ""}
    )


def slurm_starts(slurm: Slurm, folder: Path) -> list[list[str]]:
    """Node, whether in the folder of submission, and the words, of each start."""
    names = {node: f"n{i}" for i, node in enumerate(slurm.nodes)}
    names |= {address: f"n{i}" for i, address in enumerate(slurm.hosts.addresses[1:])}
    notes = [note.read_text().splitlines() for note in (folder / "notes").iterdir()]
    return rename_nodes(
        [[node, Path(at).name == folder.name, *words] for node, at, *words in notes], names
    )


def script_starts(run: job_scripts.Run) -> list[list[str]]:
    """The same of a script that was played."""
    names = {node: f"n{i}" for i, node in enumerate(run.nodes)}
    names |= {address: names[node] for address, node in run.addresses.items()}
    starts = [[one.node, one.folder == "submitted", *one.words[1:]] for one in run.starts]
    return rename_nodes(starts, names)


def command(path: Path, text: str) -> None:
    """Write an executable."""
    path.write_text(text)
    path.chmod(0o755)


def rename_nodes(starts: list[list], names: dict[str, str]) -> list[list]:
    """The starts with n0 and n1 for the nodes, sorted."""
    pattern = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))
    return sorted(
        [[pattern.sub(lambda m: names[m[0]], f"{word}") for word in one] for one in starts]
    )
