"""Record chapter 07's runs under a scheduler: python -m tests.clusters.record_launchers

Submits the chapter's program as the job scripts do, to Slurm on two pretend hosts, by sbatch and by
qsub, and writes what came of it to data/many_machines/launchers.json: the row of results, the roll
call, and the environment of each rank. `scaling` as an argument runs the scaling study instead, a
few times, and writes the fastest run of each job to data/many_machines/scaling.csv. Needs root and
Slurm; let nothing else run meanwhile.
"""

import csv
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import torch

from ddp_workbook.chapters.results import read_results
from ddp_workbook.experiments.many_machines.launchers import RANK_VARIABLES
from tests.clusters.slurm import Slurm

CHECKOUT = Path(__file__).parents[2]
DATA = CHECKOUT / "data" / "many_machines"
TIMEOUT_S = 600  # seconds for a job
ROUNDS = 2  # of the scaling study: whatever else the machine does only makes a run slower
VARIABLE_NAMES = [*RANK_VARIABLES, "SLURM_PROCID", "SLURM_NTASKS"]
# Notes its environment, then is the chapter's program.
PROGRAM = """
import json, os, runpy
from pathlib import Path
from ddp_workbook.chapters import distributed_data_parallel
seen = {name: os.environ[name] for name in SEEN if name in os.environ}
Path("FOLDER", os.environ["RANK"] + ".json").write_text(json.dumps(seen))
program = Path(distributed_data_parallel.__file__).with_name("many_machines.py")
runpy.run_path(str(program), run_name="__main__")
"""


@contextmanager
def job_scripts_copy() -> Iterator[Path]:
    """A copy of job_scripts that finds this checkout's environment, as the checkout's own does."""
    with tempfile.TemporaryDirectory(prefix="ddp-workbook-jobs-") as folder:
        ignore = shutil.ignore_patterns("runs", "results.csv", "site.sh", "*.log")
        shutil.copytree(CHECKOUT / "job_scripts", f"{folder}/job_scripts", ignore=ignore)
        os.symlink(sys.prefix, f"{folder}/.venv")
        yield Path(folder) / "job_scripts"


def run_by(slurm: Slurm, scripts: Path, ending: str) -> dict:
    """Submit the program on two nodes with two ranks each; what it reported."""
    folder = scripts / f"seen-{ending}"
    folder.mkdir()
    program = scripts / "noting.py"
    program.write_text(
        PROGRAM.replace("SEEN", repr(VARIABLE_NAMES), 1).replace("FOLDER", str(folder))
    )
    job_script = scripts / f"distributed_data_parallel_nodes.{ending}"
    settings = f"RANKS_PER_NODE=2 EPOCHS=1 RESULTS={scripts / ending}.csv"
    text = job_script.read_text()
    job_script.write_text(
        re.sub(r"(?m)^start_ranks \w+", f"{settings}\nstart_ranks {program}", text)
    )
    job = slurm.submit(job_script.name, folder=scripts)
    state = slurm.wait(job, TIMEOUT_S)
    output = slurm.output(job)
    if state != "COMPLETED":
        raise SystemExit(f"{job_script.name} is {state}:\n{output}")
    row = read_results(scripts / f"{ending}.csv").iloc[-1]
    roll_call = re.findall(r"rank \d+: host \w+, local rank \d+, \w+", output)
    return {
        "command": f"{'qsub' if ending == 'pbs' else 'sbatch'} {job_script.name}",
        "row": {name: row[name] if isinstance(row[name], str) else row[name].item()
                for name in ("ranks", "job", "loss", "accuracy", "hosts")},
        "roll call": roll_call,
        "environment": [json.loads((folder / f"{rank}.json").read_text()) for rank in range(4)],
    }  # fmt: skip


def record_launchers() -> None:
    """Write launchers.json."""
    with Slurm(nodes=2) as slurm, job_scripts_copy() as scripts:
        runs = {
            "Slurm": run_by(slurm, scripts, "slurm"),
            "PBS": run_by(slurm, scripts, "pbs"),
        }
    about = {
        "recorded on": f"{datetime.now(UTC):%Y-%m-%d}",
        "where": "two pretend hosts (network namespaces) of one machine with "
        f"{os.cpu_count()} cores, under a real Slurm; PBS by Slurm's own qsub",
        "torch": torch.__version__,
    }
    DATA.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"about": about, "runs": runs}, indent=1)
    (DATA / "launchers.json").write_text(text + "\n")


def record_scaling() -> None:
    """Write scaling.csv: job_scripts/scaling_study.sh, the fastest of ROUNDS runs of each job."""
    with Slurm(nodes=2) as slurm, job_scripts_copy() as scripts:
        settings = {"GPUS_PER_NODE": "0", "CPU_RANKS_PER_NODE": "4", "EPOCHS": "4"}
        for _ in range(ROUNDS):
            study = slurm.run(["bash", "scaling_study.sh"], cwd=scripts, env=settings, check=True)
            for job in re.findall(r"(?m)^job (\d+):", study.stdout):
                if (state := slurm.wait(job, TIMEOUT_S)) != "COMPLETED":
                    raise SystemExit(f"job {job} is {state}:\n{slurm.output(job)}")
            print((scripts / "results.csv").read_text(), flush=True)
        header, *rows = csv.reader((scripts / "results.csv").read_text().splitlines())
    ranks, batch, speed = map(header.index, ("ranks", "batch_size", "samples_per_second"))
    fastest: dict[tuple[str, str], list[str]] = {}
    for row in sorted(rows, key=lambda row: float(row[speed])):
        fastest[row[ranks], row[batch]] = row
    DATA.mkdir(parents=True, exist_ok=True)
    with (DATA / "scaling.csv").open("w", newline="") as file:
        fastest_rows = [row for row in rows if row in fastest.values()]
        csv.writer(file, lineterminator="\n").writerows([header, *fastest_rows])


if __name__ == "__main__":
    record_scaling() if "scaling" in sys.argv[1:] else record_launchers()
