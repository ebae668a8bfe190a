"""Measure the workbook's targets on this machine and print them beside the alternatives.

A full run writes data/timings/ and figs/. A row that is missed is no failure of this command; it
exits with 1 only if a row could not be measured.
"""

import math
import time
import traceback
from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from benchmarks.rows import ROWS
from benchmarks.table import Line, notes, rich_table, write_markdown
from ddp_workbook.page.machine import machine_name

REPORT = Path(__file__).parents[1] / "data" / "timings" / "benchmark.md"
WIDE = 150  # columns if the output is a file
NAMES = ", ".join(ROWS)

Names = Annotated[list[str] | None, typer.Option(metavar="ROW", help=f"One of {NAMES}.")]
Quick = Annotated[bool, typer.Option(help="Fewer rounds, 2 minutes in all; nothing is written.")]


def main(only: Names = None, leave_out: Names = None, quick: Quick = False) -> None:
    """Measure the workbook's targets on this machine; a full run writes data/timings and figs."""
    unknown = [name for name in [*(only or []), *(leave_out or [])] if name not in ROWS]
    if unknown:
        raise typer.BadParameter(f"there is no row {unknown[0]!r}; there are: {NAMES}")
    chosen = [name for name in only or ROWS if name not in (leave_out or [])]
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    console.print(f"{machine_name()}, {date.today().isoformat()}", highlight=False)
    start = time.monotonic()
    lines, failed = measure(chosen, quick, console)
    title = f"Measured on {machine_name()}, {date.today().isoformat()}"
    console.print(rich_table(lines, title))
    for note in notes(lines):
        console.print(f"- {escape(note)}", highlight=False)
    console.print(f"{time.monotonic() - start:.0f} s in all.", highlight=False)
    if not (quick or only):
        heading = title + (f", without {', '.join(leave_out)}" if leave_out else "")
        console.print(f"Written: {write_markdown(lines, heading, REPORT)}", highlight=False)
    raise typer.Exit(int(bool(failed)))


def measure(names: list[str], quick: bool, console: Console) -> tuple[list[Line], list[str]]:
    """The lines of these rows, and the names of rows that could not be measured."""
    lines, failed = [], []
    for name in names:
        start = time.monotonic()
        try:
            lines += ROWS[name](quick)
        except Exception:  # the other rows are still useful
            failed.append(name)
            lines.append(Line(name, "could not be measured", math.nan, met=False))
            console.print(escape(traceback.format_exc()))
        verdict = "could not be measured" if name in failed else "measured"
        console.print(f"{name}: {verdict}, {time.monotonic() - start:.0f} s", highlight=False)
    return lines, failed


if __name__ == "__main__":
    typer.run(main)
