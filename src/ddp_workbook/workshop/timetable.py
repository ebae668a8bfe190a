"""The instructor's day: a plan of the guide, or a list of pages, on a clock.

A page takes its own minutes for teaching and exercises, those of the questions that the room
discusses, and slack. Both the clock times in the guide and `ddp-workbook time --plan` are computed
here. The guide also says of each chapter what to leave out when the room is late.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import nbformat

from ddp_workbook.judging.catalogue import CHAPTERS
from ddp_workbook.page import pages
from ddp_workbook.workshop import minutes
from manyranks.errors import WorkbookError

SET_UP, CLOSE, BREAK, LUNCH = 10, 5, 15, 60  # minutes
QUESTION_COUNT = 2  # that the whole room discusses, on a chapter's own page
QUESTION_MINUTES = 2  # minutes that a discussion adds to the half minute of the guess
SLACK = 0.1  # of a page, for those who read slowly and for what goes wrong
PAUSE = re.compile(r"(break|lunch)(?::(\d+))?")
MAX_SITTING_MINUTES = 100  # minutes after which a list of pages gets a break
PLAN = re.compile(r"#+ (.*) \((\d+:\d\d)\)")
CELL = r"\[[^\]]*\]\([^)\s]*#cell-id=([\w-]+)\)"
SPAN = re.compile(rf"{CELL}(?: to {CELL})?")
ITEM = re.compile(r"(\d+\. )(.*?) \((\d+) min\)(.*)")  # of a list of what to leave out
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
Minutes = Mapping[str, tuple[int, int]]  # a page's stem -> teaching, exercises


class BadPlan(WorkbookError, ValueError):
    """A plan, a list of pages or a time of day that cannot be used."""


@dataclass(frozen=True)
class Row:
    """A line of a plan, with its minutes as the guide states them."""

    start: str
    what: str
    teaching: int
    exercises: int

    @property
    def page(self) -> Path | None:
        """The page that the row links to; a welcome, a break and the end have none."""
        match = re.search(r"\]\(([^)\s#]+\.ipynb)", self.what)
        return pages.FOLDER / match[1] if match else None

    @property
    def omissions(self) -> str:
        """What the row leaves out of its page, in words; "" if nothing."""
        return self.what.partition(", without ")[2]

    @property
    def questions(self) -> int:
        """Minutes in which the room discusses."""
        core = self.page is not None and pages.FURTHER not in self.page.stem
        return QUESTION_COUNT * QUESTION_MINUTES if core else 0

    @property
    def slack(self) -> int:
        """Minutes to spare."""
        return math.ceil(SLACK * (self.teaching + self.exercises + self.questions))

    @property
    def length(self) -> int:
        """All its minutes; those of a break stand in its words."""
        if self.page is None:
            pause = re.search(r", (\d+) min$", self.what)
            return int(pause[1]) if pause else 0
        return self.teaching + self.exercises + self.questions + self.slack

    def with_minutes(self, known: Minutes) -> "Row":
        """The row with what its page takes now, without what it leaves out."""
        if self.page is None:
            return self
        if self.page.stem not in known:
            raise BadPlan(f"The guide has a plan with {self.page.name}: there is no such page.")
        teaching, exercises = known[self.page.stem]
        less = cost(self.page, self.omissions, teaching)
        return replace(self, teaching=teaching - less[0], exercises=exercises - less[1])


@dataclass(frozen=True)
class Cut:
    """What can be left out of a page, in the guide's words, and the minutes that this saves."""

    stem: str
    words: str
    minutes: int


def guide_text() -> str:
    """The guide, which is beside the notebooks. Raises BadPlan if it is not there."""
    guide = pages.FOLDER / "README.md"
    try:
        return guide.read_text(encoding="utf-8")
    except OSError as error:
        raise BadPlan(f"The guide {guide} cannot be read: {error.strerror}.") from None


def plans(text: str) -> dict[str, tuple[int, list[Row]]]:
    """By heading: the minutes that a plan may take, and its rows, of which the last is its end."""
    plans_by_heading: dict[str, tuple[int, list[Row]]] = {}
    rows: list[Row] = []
    for line in text.splitlines():
        if heading := PLAN.fullmatch(line):
            rows = []
            plans_by_heading[heading[1]] = in_minutes(heading[2]), rows
        elif row := row_of(line):
            rows.append(row)
    return plans_by_heading


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


def clock(after_midnight: int) -> str:
    """90 -> "1:30"."""
    return f"{after_midnight // 60}:{after_midnight % 60:02}"


def all_minutes() -> dict[str, tuple[int, int]]:
    """By page: teaching minutes as it states them, and the sum of its exercises' own minutes."""
    known = {}
    for path in pages.all_pages():
        match = pages.STATED.search(path.read_text(encoding="utf-8"))
        if not match:
            raise BadPlan(
                f"{path.stem}: its first cell has no *teaching 20 min · exercises 8 min*."
            )
        exercises = CHAPTERS.get(path.stem[3:], [])
        known[path.stem] = int(match[1]), sum(map(minutes.of_exercise, exercises))
    return known


def cost(path: Path, words: str, teaching: int) -> tuple[int, int]:
    """Minutes of teaching and of exercises that these words name, by links to cells and by names.

    `teaching` is what the whole page takes. Raises BadPlan for a cell that the page does not have.
    """
    if not words:
        return 0, 0
    notebook = nbformat.read(path, as_version=4)
    ids = [cell.id for cell in notebook.cells]
    cell_ids = set()
    for first, last in spans(words):
        if missing := {first, last} - {*ids}:
            raise BadPlan(
                f"The guide leaves out {', '.join(missing)} of {path.stem}: no such cell."
            )
        cell_ids |= {*ids[ids.index(first) : ids.index(last) + 1]}
    own = [name for name, _ in pages.exercises(notebook)]
    names = [name for name in own if f"`{name}`" in words]
    whole = minutes.teaching(notebook)
    notebook.cells = [cell for cell in notebook.cells if cell.id in cell_ids]
    part = minutes.teaching(notebook)
    return round(teaching * part / whole), sum(map(minutes.of_exercise, names))


def spans(words: str) -> list[tuple[str, str]]:
    """The first and the last cell of each part that these words link to."""
    return [(first, last or first) for first, last in SPAN.findall(words)]


# What to leave out


def lines_with_page(text: str) -> Iterator[tuple[str, Path | None]]:
    """The guide's lines; those of the list of what to leave out come with their chapter's page."""
    titles = {pages.title(pages.load(path)): path for path in pages.all_pages()}
    page, in_list = None, False
    for line in text.split("\n"):
        if line.startswith("#"):
            page, in_list = titles.get(line.lstrip("# ")), False
        in_list = in_list or line.startswith("**If you are late**")
        yield line, page if in_list and ITEM.fullmatch(line) else None


def cuts(text: str) -> list[Cut]:
    """All that the guide's chapters say can be left out."""
    result = []
    for line, page in lines_with_page(text):
        if page and (item := ITEM.fullmatch(line)):
            result.append(Cut(page.stem, item[2], int(item[3])))
    return result


def renewed_cut(line: str, page: Path, known: Minutes) -> str:
    """A line of a list of what to leave out, with the minutes that this saves now."""
    item = ITEM.fullmatch(line)
    assert item
    return f"{item[1]}{item[2]} ({sum(cost(page, item[2], known[page.stem][0]))} min){item[4]}"


def to_leave_out(rows: Sequence[Row], late: int, text: str) -> list[Cut]:
    """What saves these minutes: as few cuts as possible, then whole pages from the end."""
    rows_by_stem = {row.page.stem: row for row in rows if row.page}
    known = [cut for cut in cuts(text) if cut.stem in rows_by_stem]
    omitted = {stem: named_parts(row.omissions) for stem, row in rows_by_stem.items()}
    known = [cut for cut in known if not named_parts(cut.words) <= omitted[cut.stem]]
    known.sort(key=lambda cut: -cut.minutes)
    selection: list[Cut] = []
    for cut in known if sum(cut.minutes for cut in known) >= late else whole_pages(rows):
        if sum(selected.minutes for selected in selection) < late:
            selection.append(cut)
    return selection


def whole_pages(rows: Sequence[Row]) -> list[Cut]:
    """The pages from the last one on, each with the pause before it, after which nothing comes."""
    whole, pause_minutes = [], 0
    for row in rows:
        if row.page:
            words = "the whole page, and the pause before it" if pause_minutes else "the whole page"
            whole.append(Cut(row.page.stem, words, row.length + pause_minutes))
            pause_minutes = 0
        elif PAUSE.match(row.what.lower()):
            pause_minutes += row.length
    return whole[::-1]


def named_parts(words: str) -> set[str | tuple[str, str]]:
    """The parts of a page and the exercises that these words name."""
    return {*spans(words), *re.findall(r"`(\w+)`", words)}


def plain(words: str) -> str:
    """Markdown without its links and its stars."""
    return LINK.sub(r"\1", words).replace("*", "")


# A day


def named_plan(name: str, text: str, known: Minutes) -> tuple[int, list[Row]]:
    """The minutes that a plan such as half-day may take, and its rows.

    Raises BadPlan for an unknown name.
    """
    plans_by_name = {name_of(heading): plan for heading, plan in plans(text).items()}
    if name not in plans_by_name:
        raise BadPlan(f"There is no plan called {name!r}. There are: {', '.join(plans_by_name)}.")
    limit, rows = plans_by_name[name]
    return limit, [row.with_minutes(known) for row in rows]


def name_of(heading: str) -> str:
    """ "Half a day" -> "half-day"."""
    return "-".join(word for word in heading.lower().split() if word != "a")


def own_list(names: Sequence[str], known: Minutes, set_up: bool = True) -> list[Row]:
    """A day with these pages; "break", "lunch" or "break:10" may stand between them.

    Without `set_up` it begins with the first of them, as in the middle of a day. Without pauses, a
    break stands before each page that would keep people for more than 100 minutes. Raises BadPlan
    for an empty list or a page that is named twice, and BadPage for an unknown one.
    """
    pauses = {name: pause(match) for name in names if (match := PAUSE.fullmatch(name))}
    if not set(names) - set(pauses):
        raise BadPlan("Name at least one page, such as 02, or a --plan of the guide.")
    rows = [Row("", f"Set-up and welcome, {SET_UP} min", 0, 0)] if set_up else []
    sitting = sum(row.length for row in rows)
    for name in names:
        if name in pauses:
            rows.append(Row("", pauses[name], 0, 0))
            continue
        (path,) = pages.find_pages([name])
        if any(row.page == path for row in rows):
            raise BadPlan(f"{path.stem} is named twice.")
        link = f"[{pages.title(pages.load(path))}]({pages.place_of(path.stem)})"
        row = Row("", link, 0, 0).with_minutes(known)
        sitting += row.length
        if (
            sitting > MAX_SITTING_MINUTES
            and not set(names) & set(pauses)
            and rows
            and rows[-1].page
        ):
            rows.append(Row("", f"Break, {BREAK} min", 0, 0))
            sitting = row.length
        rows.append(row)
    return [*rows, Row("", f"Close, {CLOSE} min", 0, 0), Row("", "End", 0, 0)]


def pause(match: re.Match) -> str:
    """A pause as the plans write it: "Break, 15 min"."""
    usual = {"break": BREAK, "lunch": LUNCH}[match[1]]
    return f"{match[1].capitalize()}, {int(match[2] or usual)} min"


def time_of_day(words: str) -> int:
    """Minutes after midnight of "9:00". Raises BadPlan for what is no time of a day."""
    match = re.fullmatch(r"(\d{1,2}):(\d\d)", words)
    if not match or int(match[1]) > 23 or int(match[2]) > 59:
        raise BadPlan(f"{words!r} is no time of the day. Write it as 9:00 or 13:30.")
    return in_minutes(words)


def on_the_clock(rows: Sequence[Row], start: int) -> list[Row]:
    """The rows, each with its start; `start` is in minutes after midnight.

    Raises BadPlan if they would end after midnight.
    """
    whole = sum(row.length for row in rows)
    if start + whole > 24 * 60:
        latest = f"; start at {clock(24 * 60 - whole)} or before" if whole <= 24 * 60 else ""
        raise BadPlan(f"This would end after midnight: it takes {clock(whole)} hours{latest}.")
    timed_rows = []
    for row in rows:
        timed_rows.append(replace(row, start=clock(start)))
        start += row.length
    return timed_rows
