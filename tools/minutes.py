"""Writes the minutes that pages, their lists and the instructor's guide state: nobody types them.

    python -m tools.minutes            compute them, and write what has changed
    python -m tools.minutes --run 04   also run this page, and write its teaching minutes

An exercise states its minutes in its own file. From them follow a page's exercise minutes, the
tables of README.md and notebooks/further/README.md, and in the guide the clock of every plan, and
what leaving out a part of a page saves. Teaching minutes need a run, because code that a cell shows
counts: without `--run` they stay as the page states them, and test_notebooks.py compares. Nothing
is written if a page or a plan gets too long.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from ddp_workbook.page import pages
from ddp_workbook.workshop import timetable
from ddp_workbook.workshop.timetable import Minutes, all_minutes
from tools.set_up import ROOT

GUIDE = ROOT / "notebooks" / "README.md"
LISTS = (ROOT / "README.md", ROOT / "notebooks" / "further" / "README.md")  # of pages
MAX_PAGE_MINUTES = 50  # minutes that a room stays with one page: at most 30 of teaching


def updated_guide(known: Minutes) -> str:
    """The guide, with all its minutes, sums and clock times."""
    clock = teaching = exercises = 0
    lines = []
    for line, page in timetable.lines_with_page(GUIDE.read_text(encoding="utf-8")):
        if timetable.PLAN.fullmatch(line):
            clock = teaching = exercises = 0
        if row := timetable.row_of(line):
            own = row.with_minutes(known)
            cells = line.split("|")
            cells[1] = f" {timetable.clock(clock)} "
            if row.page or row.what == "End":
                both = (own.teaching, own.exercises) if row.page else (teaching, exercises)
                cells[3:5] = [f" {n} " for n in both]
                teaching, exercises = teaching + own.teaching, exercises + own.exercises
            line = "|".join(cells)
            clock += own.length
        elif page:
            line = timetable.renewed_cut(line, page, known)
        lines.append(line)
    return "\n".join(lines)


def too_long(known: Minutes) -> Iterator[str]:
    """A sentence for each page and each plan that does not fit into its time."""
    for stem, both in known.items():
        if sum(both) > MAX_PAGE_MINUTES:
            yield f"{stem} would take {sum(both)} minutes; a page may take {MAX_PAGE_MINUTES}."
    for heading, (limit, rows) in timetable.plans(updated_guide(known)).items():
        late = timetable.in_minutes(rows[-1].start) - limit
        if late > 0:
            yield f"The plan {heading!r} would end {late} minutes late."


def refuse_too_long(known: Minutes) -> None:
    """End, before anything is written, with what would be too long and where there is room."""
    if problems := [*too_long(known)]:
        planned_pages = {
            row.page
            for _, rows in timetable.plans(GUIDE.read_text("utf-8")).values()
            for row in rows
        }
        free = ", ".join(path.stem for path in pages.all_pages() if path not in planned_pages)
        sys.exit("\n".join([*problems, f"Nothing was written. In no plan are: {free}."]))


def updated_texts(known: Minutes) -> dict[Path, str]:
    """Each file that states minutes, with the text that it must have."""
    texts = {GUIDE: updated_guide(known)}
    lists = {path: path.read_text(encoding="utf-8") for path in LISTS}
    for path in pages.all_pages():
        teaching, exercises = known[path.stem]
        statement = f"*teaching {teaching} min · exercises {exercises} min*"
        texts[path] = pages.STATED.sub(statement, path.read_text(encoding="utf-8"), count=1)
        row = rf"([(/]{path.name}\)) \| \d+ \+ \d+ \|"
        for file, table in lists.items():
            lists[file] = re.sub(row, rf"\1 | {teaching} + {exercises} |", table)
    return {**texts, **lists}


def write(known: Minutes) -> None:
    """Write these minutes wherever they are stated; end with words if something is too long."""
    refuse_too_long(known)
    for path, text in updated_texts(known).items():
        if text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8")
            print(f"minutes in {path.relative_to(ROOT)}")


def teaching_of(path: Path) -> int:
    """The teaching minutes of a page that is run now, in a copy."""
    from ddp_workbook.workshop.page_times import page_times

    (page_time,) = page_times([path.stem], run=True)
    if page_time.failed:
        sys.exit(f"{path.stem}, {page_time.failed[0]}")
    return round(page_time.teaching)


def main() -> None:
    """Run the command line."""
    options = argparse.ArgumentParser(prog="python -m tools.minutes", description=__doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("--run", nargs="+", metavar="PAGE", default=[], help="pages to run")
    known = all_minutes()
    if names := options.parse_args().run:
        for path in pages.find_pages(names):
            known[path.stem] = teaching_of(path), known[path.stem][1]
    write(known)


if __name__ == "__main__":
    main()
