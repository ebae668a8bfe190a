"""How long a reader waits for the chapters' pages 00 to 06, as shipped."""

import tempfile
import time
from pathlib import Path

from benchmarks.table import Line
from ddp_workbook.page.pages import FURTHER, place_of
from tools import book

# Seconds on 2 cores: for these pages together, and for the longest of them.
LIMITS = {("00", "05"): (110, 30), ("00", "06"): (150, None)}


def measure(quick: bool = False) -> list[Line]:
    """A line for each limit, the seconds of each page in it; a quick run takes the first page."""
    with tempfile.TemporaryDirectory() as folder:
        copies = book.copy_layout(Path(folder))
        last = max(last for _, last in LIMITS)
        stems = [
            path.stem
            for path in book.NOTEBOOKS
            if path.stem[:2] <= last and FURTHER not in path.stem
        ]
        took, failed = {}, []
        for stem in stems[:1] if quick else stems:
            start = time.monotonic()
            notebook = book.execute(copies / place_of(stem))
            took[stem] = time.monotonic() - start
            failed += [f"{stem}, {error}" for error in book.errors(notebook)]
    if quick:
        return [line(took, failed)]
    return [
        line({s: took[s] for s in stems if first <= s[:2] <= last}, failed, *limits)
        for (first, last), limits in LIMITS.items()
    ]


def line(
    took: dict[str, float],
    failed: list[str],
    together: float | None = None,
    longest: float | None = None,
) -> Line:
    """These pages' seconds against the limits; without `together` there is no target."""
    total = sum(took.values())
    target, met = "", None
    if together is not None:
        target, met = f"at most {together} s", total <= together and not failed
    if longest is not None:
        target += f", none over {longest} s"
        met = met and max(took.values()) <= longest
    return Line(
        f"notebooks as shipped: {', '.join(stem[:2] for stem in took)}",
        f"{total:.0f} s together",
        total,
        "; ".join(f"{stem} {seconds:.0f} s" for stem, seconds in took.items()),
        target=target,
        met=met,
        note="failed cells: " + "; ".join(failed) if failed else "",
    )
