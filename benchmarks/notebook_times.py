"""How long a reader waits for the notebooks 00 to 06, as shipped."""

import tempfile
import time
from pathlib import Path

from benchmarks.table import Line
from tools import book

LIMIT = 150  # seconds together, on 2 cores
BEHIND = "07"  # later notebooks have no target


def measure(quick: bool = False) -> list[Line]:
    """One line, the seconds of each notebook in it; a quick run takes the first notebook only."""
    with tempfile.TemporaryDirectory() as folder:
        copies = book.copy_layout(Path(folder))
        stems = sorted(
            path.stem
            for path in copies.glob("*.ipynb")
            if path.stem < BEHIND and "_further_" not in path.stem
        )
        took, failed = {}, []
        for stem in stems[:1] if quick else stems:
            start = time.monotonic()
            done = book.execute(copies / f"{stem}.ipynb")
            took[stem] = time.monotonic() - start
            failed += [f"{stem}, {error}" for error in book.errors(done)]
    total = sum(took.values())
    return [
        Line(
            f"notebooks as shipped: {', '.join(stem[:2] for stem in took)}",
            f"{total:.0f} s together",
            total,
            "; ".join(f"{stem} {seconds:.0f} s" for stem, seconds in took.items()),
            target="" if quick else f"at most {LIMIT} s",
            met=None if quick else total <= LIMIT and not failed,
            note="failed cells: " + "; ".join(failed) if failed else "",
        )
    ]
