"""Run the parts and print a table of outcomes: `make gpu`, `make gpu ARGS="memory tests"`.

The exit code is 0 only if all parts ran and none failed.
"""

import signal
import subprocess
import sys
import time
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ddp_workbook.experiments.one_gpu import FOLDER
from tools.gpu.parts import parts
from tools.gpu.running import BUDGET_S, FAILED, LOGS, OK, Outcome, last_lines, run_all
from tools.set_up import ROOT

WIDE = 150  # columns if the output is a file
NO_GPU = (
    "make gpu measures an NVIDIA GPU, but torch {version} sees none here; on a machine that has "
    "one, make gpu TORCH=cuda or TORCH=site gets a torch that sees it."
)
Names = Annotated[list[str] | None, typer.Argument(metavar="[PART]...", help="All, or these.")]
Budget = Annotated[float, typer.Option(help="Seconds for all parts together.")]


def main(names: Names = None, budget: Budget = BUDGET_S) -> None:
    """All that one NVIDIA GPU can show: measurements to data/gpu, tests marked gpu1, the pages."""
    if not torch.cuda.is_available():
        sys.exit(NO_GPU.format(version=torch.__version__))
    there = {part.name: part for part in parts()}
    unknown = [name for name in names or [] if name not in there]
    if unknown:
        raise typer.BadParameter(f"there is no part {unknown[0]!r}; there are: {', '.join(there)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the parts must end with this
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    machine, start = name_of_gpu(), time.monotonic()
    console.print(machine, highlight=False)
    selection = [there[name] for name in names or there]
    outcomes = run_all(selection, lambda outcome: print_outcome(outcome, console), budget)
    console.print(table(outcomes, machine))
    console.print(f"{time.monotonic() - start:.0f} s in all. Measurements: {short_path(FOLDER)}")
    raise typer.Exit(int(any(outcome.state != OK for outcome in outcomes)))


def name_of_gpu() -> str:
    """The GPU with torch and CUDA; ends the command if it cannot be used after all.

    Asked in another process: this one must not hold the GPU, which a site may give to one only.
    """
    line = [sys.executable, "-m", "tools.gpu.work", "name"]
    result = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"torch sees an NVIDIA GPU but cannot use it: {result.stderr.splitlines()[-1]}")
    return result.stdout.splitlines()[-1]


def print_outcome(outcome: Outcome, console: Console) -> None:
    """One line as soon as a part has ended, and the end of its log if it failed."""
    line = f"{outcome.name}: {outcome.state}, {outcome.seconds:.0f} s. {outcome.reason}".rstrip()
    console.print(escape(line), highlight=False, soft_wrap=True)
    if outcome.state == FAILED:
        for text in last_lines(outcome.name):
            console.print("  " + escape(text), highlight=False, soft_wrap=True)
        console.print(f"  The whole log: {short_path(LOGS)}/{outcome.name}.log", highlight=False)


def table(outcomes: list[Outcome], machine: str) -> Table:
    """Part, seconds, state, reason; the state is in words, its colour only helps."""
    grid = Table("part", "seconds", "", "reason", title=machine, title_justify="left")
    for outcome in outcomes:
        style = {OK: "green", FAILED: "bold red"}.get(outcome.state, "yellow")
        state = f"[{style}]{outcome.state}[/]"
        grid.add_row(outcome.name, f"{outcome.seconds:.0f}", state, escape(outcome.reason))
    return grid


def short_path(path) -> str:
    """A path below the checkout, relative to it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    typer.run(main)
