"""The instructor's plan for ninety minutes, walked through in a browser with a clock.

Only the cells of the plan are run, with Shift + Enter, and every exercise wrongly before rightly.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from ddp_workbook.judging.catalogue import find
from ddp_workbook.page.pages import EXERCISE, place_of
from ddp_workbook.workshop.timetable import Row, guide_text, plans, spans
from tests.browser.lab import lab
from tools import book

pytestmark = pytest.mark.push("the browser")

(ROWS,) = [rows for limit, rows in plans(guide_text()).values() if limit == 90]


@pytest.mark.browser
@pytest.mark.release("whole pages in a browser")
def test_the_plan_for_ninety_minutes(tmp_path):
    """Every cell runs although others are left out, and the room does not wait for the machine."""
    pytest.importorskip("playwright")
    book.copy_layout(tmp_path)
    rows = [row for row in ROWS if row.page]
    waits = []
    with lab(tmp_path) as opened:
        for row in rows:
            path, began = row.page, time.monotonic()
            page = opened(f"notebooks/{place_of(path.stem)}")
            for name, code in steps(row, path):
                if code is not None:
                    page.write(name, code)
                output = page.run(name)
                if EXERCISE.match(page.source(name)):
                    solved = page.source(name) == solution(EXERCISE.match(page.source(name))[1])
                    assert ("Not yet" in output) != solved, output
            assert page.errors() == page.faults() == []
            page.close()
            waits.append(time.monotonic() - began)
            print(f"{row.start} {path.stem}: {waits[-1]:.0f} s of waiting")
    assert sum(waits) < 20 * 60  # two minutes on a quiet machine; five are to spare in the plan


def steps(row: Row, path: Path) -> Iterator[tuple[str, str | None]]:
    """(cell, what to type into it, or None) for everything that the row has people do."""
    cells = nbformat.read(path, as_version=4).cells
    ids = [cell.id for cell in cells]
    gone = {one for a, b in spans(row.omissions) for one in ids[ids.index(a) : ids.index(b) + 1]}
    for cell in cells:
        exercise = EXERCISE.match(cell.source)
        if cell.cell_type != "code" or cell.id in gone:
            continue
        if exercise and f"`{exercise[1]}`" not in row.omissions:
            yield cell.id, f"%%exercise {exercise[1]}\n{wrong_answer(exercise[1])}"
            yield cell.id, solution(exercise[1])
        elif not exercise:
            yield cell.id, None


def wrong_answer(name: str) -> str:
    """The solution with the first mistake of the table."""
    _, edit = find(name).check.edits[0]
    return edit.apply(find(name).solution)


def solution(name: str) -> str:
    """The exercise's cell, solved."""
    return f"%%exercise {name}\n{find(name).solution}".rstrip("\n")
