"""From the notebook to a scheduler: which command, and submitting only where the reader says so."""

import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd

from ddp_workbook.experiments.many_machines.launchers import CHECKOUT
from ddp_workbook.page.display import PlainText
from manyranks.errors import WorkbookError

JOB_SCRIPTS = CHECKOUT / "job_scripts"
ENDINGS = {"sbatch": ".slurm", "qsub": ".pbs"}
WATCH = {"sbatch": "squeue --me", "qsub": "qstat -u $USER"}
TIMEOUT_S = 60  # seconds; a busy scheduler answers late


def job_script(name: str) -> Path:
    """The path of a script of job_scripts. Raises WorkbookError if there is none of that name."""
    path = JOB_SCRIPTS / name
    if not path.is_file():
        raise WorkbookError(f"There is no {name} in {JOB_SCRIPTS}.")
    return path


LINES = {  # what it is for: where it stands in a script for Slurm, and in one for PBS
    "nodes": (r"--nodes=\d+", r"select=\d+"),
    "GPUs of a node": (r"--gpus-per-node=\d+", r"ngpus=\d+"),
    "cores of a node": (r"--cpus-per-task=\d+", r"ncpus=\d+"),
    "time limit": (r"--time=\S+", r"walltime=\S+"),
    "account": (r"--account=\S+", r"-A \S+"),
    "where it waits": (r"--partition=\S+", r"-q \S+"),
    "name": (r"--job-name=\S+", r"-N \S+"),
    "output and errors": (r"--output=\S+", r"-j oe"),
    "one torchrun on each node": (r"--ntasks-per-node=1", r"place=scatter"),
    "folder of submission": (r"\$\{SLURM_SUBMIT_DIR", r"\$\{PBS_O_WORKDIR"),
    "who starts the ranks": (r"start_ranks.sh slurm", r"start_ranks.sh pbs"),
}


def directives_table(job: str) -> pd.DataFrame:
    """What the job's two scripts say in other words: a row a purpose, a column a scheduler."""
    scripts = [job_script(job + ending).read_text(encoding="utf-8") for ending in ENDINGS.values()]
    return pd.DataFrame(
        [
            [re.findall(pattern, script)[0].lstrip("${") for pattern, script in pairs]
            for pairs in (zip(words, scripts, strict=True) for words in LINES.values())
        ],
        index=pd.Index(LINES, name="what"),
        columns=["Slurm", "PBS"],
    )


def submit(job: str, confirm: bool = False) -> PlainText:
    """Submit the script of `job` to this machine's scheduler, or say what would be typed.

    Only with `really` does anything happen. Raises WorkbookError with the scheduler's own words if
    it refuses the job, or if there is no such script.
    """
    command = next(filter(shutil.which, ENDINGS), None)
    if command is None:
        lines = " or  ".join(f"{word} {job}{ending}" for word, ending in ENDINGS.items())
        return PlainText(
            "This machine has neither sbatch nor qsub, so nothing can be submitted here. On a "
            f"login node of your cluster:\n  cd job_scripts\n  {lines}"
        )
    script = job_script(f"{job}{ENDINGS[command]}").name
    if not confirm:
        return PlainText(
            "Nothing was submitted. With SUBMIT = True this cell would type:\n"
            f"  cd job_scripts\n  {command} {script}"
        )
    try:
        result = subprocess.run(
            [command, script], cwd=JOB_SCRIPTS, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        words = f"{command} has not answered for {TIMEOUT_S} s. Look with `{WATCH[command]}` "
        raise WorkbookError(words + "whether the job is there before you try again.") from None
    if result.returncode != 0:
        raise WorkbookError(
            f"{command} refuses {script}: {(result.stderr or result.stdout).strip()}"
        )
    return PlainText(f"{result.stdout.strip()}\nWatch it: {WATCH[command]}")
