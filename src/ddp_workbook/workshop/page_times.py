"""`ddp-workbook time`: the minutes that a page takes, and the seconds that its cells run here."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat

from ddp_workbook.page import pages
from ddp_workbook.workshop import execution, minutes


@dataclass(frozen=True)
class PageTime:
    """A page's computed minutes for teaching and exercises, and the two that it states.

    `seconds` is how long its cells ran on this machine, None if they did not; `failed` names the
    cells that raised an error.
    """

    stem: str
    teaching: float
    exercises: int
    stated_minutes: tuple[int, int] | None
    seconds: float | None
    failed: list[str]


def page_times(names: Sequence[str], run: bool) -> Iterator[PageTime]:
    """The times of these pages, or of all; `run` executes each page in a temporary copy.

    Raises BadPage at once for an unknown name.
    """
    paths = pages.find_pages(names)
    return _times(paths, run)


def _times(paths: Sequence[Path], run: bool) -> Iterator[PageTime]:
    with tempfile.TemporaryDirectory(prefix="ddp-workbook-time-") as folder:
        copies = execution.copy_layout(Path(folder)) if run else Path(folder)
        for path in paths:
            notebook, seconds, failed = nbformat.read(path, as_version=4), None, []
            if run:
                start = time.monotonic()
                notebook = execution.execute(copies / path.relative_to(pages.FOLDER))
                seconds = time.monotonic() - start
                failed = execution.errors(notebook)
            yield PageTime(
                path.stem,
                minutes.teaching(notebook, seconds or 0.0),
                minutes.exercises(notebook),
                minutes.stated_minutes(notebook),
                seconds,
                failed,
            )
