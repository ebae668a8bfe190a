"""Writes the minutes that pages, README.md and the instructor's guide state: nobody types them.

    python -m tools.minutes            compute them, and write what has changed
    python -m tools.minutes --run 04   also run this page, and write its teaching minutes

An exercise states its minutes in its own file. From them follow a page's exercise minutes, the
tables of README.md, and the minutes and clock times of every plan in the guide. Teaching minutes
need a run, because code that a cell shows counts: without `--run` they stay as the page states
them, and tests/test_notebooks.py compares. Nothing is written if a page or a plan gets too long.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import nbformat

from ddp_workbook.exercises import CHAPTERS
from ddp_workbook.instructor import minutes
from ddp_workbook.notebook import pages
from tools.set_up import ROOT

README, GUIDE = ROOT / "README.md", ROOT / "notebooks" / "README.md"
LONGEST_PAGE = 45  # minutes that a room stays with one page
HALF_DAY = 200  # for chapters 00 to 05; the plan of four hours adds its breaks
PLAN = re.compile(r"#+ (.*) \((\d+:\d\d)\)")
Minutes = Mapping[str, tuple[int, int]]  # a page's stem -> teaching, exercises


@dataclass(frozen=True)
class Row:
    """A line of a plan in the guide, with its minutes as the guide states them."""

    start: str
    what: str
    teaching: int
    exercises: int

    @property
    def page(self) -> Path | None:
        """The page that the row links to; a welcome, a break and the end have none."""
        found = re.search(r"\]\(([^)\s#]+\.ipynb)", self.what)
        return pages.FOLDER / found[1] if found else None

    @property
    def length(self) -> int:
        """All its minutes; those of a break stand in its words."""
        pause = re.search(r", (\d+) min$", self.what)
        return int(pause[1]) if pause else self.teaching + self.exercises

    @property
    def parts(self) -> list[tuple[str, str]]:
        """The first and the last cell of each part of the page; [] if all of it is taken."""
        ends = re.findall(r"#cell-id=([\w-]+)\)", self.what)
        return list(zip(ends[::2], ends[1::2], strict=True))

    @property
    def chosen(self) -> list[str]:
        """The exercises that a row of parts takes."""
        return re.findall(r"exercise `(\w+)`", self.what)


def plans(text: str) -> dict[str, tuple[int, list[Row]]]:
    """By heading: the minutes that a plan may take, and its rows, of which the last is its end."""
    found: dict[str, tuple[int, list[Row]]] = {}
    rows: list[Row] = []
    for line in text.splitlines():
        if heading := PLAN.fullmatch(line):
            rows = []
            found[heading[1]] = in_minutes(heading[2]), rows
        elif row := row_of(line):
            rows.append(row)
    return found


def row_of(line: str) -> Row | None:
    """A line of a plan's table; None for any other line."""
    cells = [cell.strip().strip("*") for cell in line.split("|")[1:-1]]
    if len(cells) != 5 or not re.fullmatch(r"\d+:\d\d", cells[0]):
        return None
    return Row(cells[0], cells[1], int(cells[2] or 0), int(cells[3] or 0))


def in_minutes(clock: str) -> int:
    """ "1:30" -> 90."""
    hours, rest = clock.split(":")
    return 60 * int(hours) + int(rest)


def all_minutes() -> dict[str, tuple[int, int]]:
    """Teaching minutes as each page states them, and those of its exercises."""
    known = {}
    for path in pages.all_pages():
        found = pages.STATED.search(path.read_text(encoding="utf-8"))
        if not found:
            sys.exit(f"{path.stem}: its first cell has no *teaching 20 min · exercises 8 min*.")
        known[path.stem] = (
            int(found[1]),
            sum(map(minutes.of_exercise, CHAPTERS.get(path.stem[3:], []))),
        )
    return known


def due(row: Row, known: Minutes) -> tuple[int, int]:
    """The minutes of a row's page, or of the parts of it that the row takes."""
    if row.page is None:
        return 0, 0
    teaching, exercises = known[row.page.stem]
    if not row.parts:
        return teaching, exercises
    return round(teaching * share(row.page, row.parts)), sum(map(minutes.of_exercise, row.chosen))


def share(path: Path, parts: list[tuple[str, str]]) -> float:
    """How much of a page's teaching is in the cells from the first to the last of each part."""
    whole, taken = (nbformat.read(path, as_version=4) for _ in range(2))
    ids = [cell.id for cell in whole.cells]
    spans = [range(ids.index(first), ids.index(last) + 1) for first, last in parts]
    spans[0] = range(spans[0].stop)  # the opening belongs to the first part
    taken.cells = [whole.cells[n] for span in spans for n in span]
    return minutes.teaching(taken) / minutes.teaching(whole)


def renewed_guide(known: Minutes) -> str:
    """The guide, with the minutes, the sums and the clock times of its plans."""
    clock = teaching = exercises = 0
    lines = []
    for line in GUIDE.read_text(encoding="utf-8").split("\n"):
        if PLAN.fullmatch(line):
            clock = teaching = exercises = 0
        if row := row_of(line):
            own = due(row, known)
            cells = line.split("|")
            cells[1] = f" {clock // 60}:{clock % 60:02} "
            if row.page or row.what == "End":
                cells[3:5] = [f" {n} " for n in (own if row.page else (teaching, exercises))]
            line = "|".join(cells)
            clock += sum(own) or row.length
            teaching, exercises = teaching + own[0], exercises + own[1]
        lines.append(line)
    return "\n".join(lines)


def too_long(known: Minutes) -> Iterator[str]:
    """A sentence for each page and each plan that does not fit into its time."""
    for stem, both in known.items():
        if sum(both) > LONGEST_PAGE:
            yield f"{stem} would take {sum(both)} minutes; a page may take {LONGEST_PAGE}."
    core = sum(sum(known[stem]) for stem in known if stem < "06" and pages.FURTHER not in stem)
    if core > HALF_DAY:
        yield f"Chapters 00 to 05 would take {core} minutes; half a day has {HALF_DAY}."
    for heading, (limit, rows) in plans(renewed_guide(known)).items():
        late = in_minutes(rows[-1].start) - limit
        if late > 0:
            yield f"The plan {heading!r} would end {late} minutes late."


def refuse_too_long(known: Minutes) -> None:
    """End, before anything is written, with what would be too long and where there is room."""
    if problems := [*too_long(known)]:
        taken = {row.page for _, rows in plans(GUIDE.read_text("utf-8")).values() for row in rows}
        free = ", ".join(path.stem for path in pages.all_pages() if path not in taken)
        sys.exit("\n".join([*problems, f"Nothing was written. In no plan are: {free}."]))


def renewed(known: Minutes) -> dict[Path, str]:
    """Each file that states minutes, with the text that it must have."""
    texts = {GUIDE: renewed_guide(known)}
    readme = README.read_text(encoding="utf-8")
    for path in pages.all_pages():
        teaching, exercises = known[path.stem]
        said = f"*teaching {teaching} min · exercises {exercises} min*"
        texts[path] = pages.STATED.sub(said, path.read_text(encoding="utf-8"), count=1)
        row = rf"(\(notebooks/{path.name}\)) \| \d+ \+ \d+ \|"
        readme = re.sub(row, rf"\1 | {teaching} + {exercises} |", readme)
    return {**texts, README: readme}


def write(known: Minutes) -> None:
    """Write these minutes wherever they are stated; end with words if something is too long."""
    refuse_too_long(known)
    for path, text in renewed(known).items():
        if text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8")
            print(f"minutes in {path.relative_to(ROOT)}")


def teaching_of(path: Path) -> int:
    """The teaching minutes of a page that is run now, in a copy."""
    from ddp_workbook.instructor.page_times import page_times

    (found,) = page_times([path.stem], run=True)
    if found.failed:
        sys.exit(f"{path.stem}, {found.failed[0]}")
    return round(found.teaching)


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
