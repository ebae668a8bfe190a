"""The instructor's guide, notebooks/README.md: what it names exists, and its plans add up."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from ddp_workbook.cli import app
from ddp_workbook.exercises.judging.catalogue import find, names
from ddp_workbook.instructor import minutes
from tests.test_layout import CHECKOUT, notebook, source
from tests.test_lessons import CORE, HALF_DAY, page

GUIDE = CHECKOUT / "notebooks" / "README.md"
TEXT = GUIDE.read_text(encoding="utf-8")
COMMANDS = typer.main.get_command(app).commands
LINK = re.compile(r"\]\(([^)\s]+)\)")
PLAN = re.compile(r"(?m)^#+ (.*) \((\d+:\d\d)\)$")


@dataclass(frozen=True)
class Row:
    """A line of a plan: when it begins, what it takes, and its minutes as the guide states them."""

    start: int
    what: str
    teaching: int
    exercises: int

    @property
    def minutes(self) -> int:
        """All of them; those of a break stand in its words."""
        pause = re.search(r", (\d+) min$", self.what)
        return int(pause[1]) if pause else self.teaching + self.exercises

    @property
    def pages(self) -> list[Path]:
        """The pages that the row links to."""
        found = {link.partition("#")[0] for link in LINK.findall(self.what)}
        return sorted(GUIDE.parent / link for link in found)

    @property
    def is_part(self) -> bool:
        """Whether only parts of the page are taken."""
        return self.what.startswith("Part of ")


def in_minutes(clock: str) -> int:
    """ "1:30" -> 90."""
    hours, rest = clock.split(":")
    return 60 * int(hours) + int(rest)


def section(heading: str) -> str:
    """What stands under this heading, up to the next one of the same level or a higher one."""
    _, found, after = TEXT.partition(f"\n{heading}\n")
    assert found, f"there is no heading {heading!r}"
    level = len(heading.partition(" ")[0])
    return re.split(rf"(?m)^#{{1,{level}}} ", after)[0]


def plan_rows(heading: str) -> list[Row]:
    """The lines of a plan's table, the last one included, which is the end."""
    found = []
    for line in section(heading).splitlines():
        cells = [cell.strip().strip("*") for cell in line.split("|")[1:-1]]
        if len(cells) == 5 and re.fullmatch(r"\d+:\d\d", cells[0]):
            start, what, teaching, exercises, _ = cells
            found.append(Row(in_minutes(start), what, int(teaching or 0), int(exercises or 0)))
    return found


PLANS = {match[0]: in_minutes(match[2]) for match in PLAN.finditer(TEXT)}
ROWS = [(heading, row) for heading in PLANS for row in plan_rows(heading) if row.pages]


def parts(row: Row) -> list[tuple[str, str]]:
    """The first and the last cell of each part that a row takes of its page."""
    ends = re.findall(r"#cell-id=([\w-]+)\)", row.what) if row.is_part else []
    return list(zip(ends[::2], ends[1::2], strict=True))


def share(path: Path, taken: list[tuple[str, str]]) -> float:
    """How much of a page's teaching is in the cells from the first to the last id of each pair."""
    whole, part = page(path), page(path)
    ids = [cell.id for cell in whole.cells]
    spans = [range(ids.index(first), ids.index(last) + 1) for first, last in taken]
    if spans[0].start > 0:  # the opening belongs to the first part
        spans[0] = range(spans[0].stop)
    part.cells = [whole.cells[i] for span in spans for i in span]
    return minutes.teaching(part) / minutes.teaching(whole)


def due(row: Row) -> tuple[int, int]:
    """The minutes of the page, or of the parts of it that the row names."""
    (path,) = row.pages
    teaching, exercises = minutes.stated(page(path))
    if not row.is_part:
        return teaching, exercises
    taken = re.findall(r"exercise `(\w+)`", row.what)
    return round(teaching * share(path, parts(row))), sum(find(one).module.MINUTES for one in taken)


# The plans


def test_one_hour_is_enough_to_prepare():
    """The last column of the table of days."""
    lines = section("## Before the day").splitlines()
    assert sum(int(found[1]) for line in lines if (found := re.search(r"\| (\d+) \|$", line))) == 60


def test_there_are_plans_for_ninety_minutes_half_a_day_and_two_days():
    assert list(PLANS.values())[:2] == [90, 240] and len(PLANS) == 4


@pytest.mark.parametrize(("heading", "row"), ROWS, ids=[f"{h}-{r.what[:40]}" for h, r in ROWS])
def test_a_row_has_the_minutes_of_its_page(heading, row):
    """A page's own; for parts of a page what they take by the same count, within a minute."""
    teaching, exercises = due(row)
    assert row.exercises == exercises
    assert abs(row.teaching - teaching) <= (1 if row.is_part else 0)


@pytest.mark.parametrize("heading", PLANS)
def test_a_plan_adds_up(heading):
    """Each row begins when the one before ends; the last one has the sums, and is in time."""
    *rows, end = plan_rows(heading)
    clock = 0
    for row in rows:
        assert row.start == clock, row.what
        clock += row.minutes
    sums = sum(row.teaching for row in rows), sum(row.exercises for row in rows)
    assert (end.what, end.start) == ("End", clock)
    assert (end.teaching, end.exercises) == sums
    assert clock <= PLANS[heading], "longer than its heading says"


@pytest.mark.parametrize("heading", PLANS)
def test_a_plan_takes_a_page_once_and_its_chapter_first(heading):
    stems = [row.pages[0].stem for row in plan_rows(heading) if row.pages]
    core = [stem for stem in stems if "_further_" not in stem]
    assert len(stems) == len(set(stems)) and core == sorted(core)
    for place, stem in enumerate(stems):
        assert stem in core or stem[:2] in {one[:2] for one in stems[:place]}


def test_half_a_day_is_chapters_00_to_05():
    (heading,) = [one for one, length in PLANS.items() if length == 240]
    assert [row.pages[0] for row in plan_rows(heading) if row.pages] == HALF_DAY


def test_two_days_take_every_chapter_and_five_to_six_hours_a_day():
    days = [plan_rows(heading) for heading in list(PLANS)[2:]]
    stems = {row.pages[0] for rows in days for row in rows if row.pages}
    assert set(CORE) <= stems
    for *rows, _ in days:
        assert 300 <= sum(row.teaching + row.exercises for row in rows) <= 360


# The chapters


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.stem)
def test_each_chapter_has_its_section(path):
    """A goal, a cell of the page as its moment, three to five answered questions, a mistake."""
    title = source(notebook(path)["cells"][0]).partition("\n")[0].removeprefix("# ")
    words = section(f"### {title}")
    marks = "Goal.", "Moment.", "Questions", "Typical mistake"
    parts = "(.*)".join(re.escape(f"**{mark}**") for mark in marks)
    goal, moment, questions, mistake = re.search(rf"(?s){parts}(.*)", words).groups()
    assert goal.strip().endswith(".") and f"({path.name}#cell-id=" in moment
    asked = re.findall(r"(?m)^- \*.*\?\* [`\w]", questions)
    assert 3 <= len(asked) <= 5 and len(asked) == questions.count("\n- ")
    cells = [source(cell) for cell in notebook(path)["cells"]]
    own = {match[1] for cell in cells if (match := re.match(r"%%exercise (\w+)", cell))}
    assert set(re.findall(r"[Ii]n\s`(\w+)`", mistake)) == own


# What it names


def test_exercises_exist():
    """Those behind the word exercise, and those of the mistakes."""
    named = set(re.findall(r"(?:exercise|[Ii]n)\s`(\w+)`", TEXT))
    assert named <= set(names())


@pytest.mark.parametrize("link", sorted(set(LINK.findall(TEXT))))
def test_links_lead_to_a_file_or_a_cell(link):
    if link.startswith("http"):
        return
    target, _, fragment = link.partition("#")
    path = GUIDE.parent / target
    assert path.exists()
    if fragment:  # JupyterLab's form; its anchors of headings differ from GitHub's
        ids = [f"cell-id={cell['id']}" for cell in notebook(path)["cells"]]
        assert fragment in ids


def test_commands_and_their_options_exist():
    """Each `ddp-workbook NAME --option`, also in the text for attendees."""
    found = re.findall(r"ddp-workbook ([a-z]+)((?: [^`\n|]*)?)", TEXT)
    assert {name for name, _ in found} <= set(COMMANDS)
    for name, rest in found:
        options = {option for one in COMMANDS[name].params for option in one.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= options | {"--help"}, name


def test_make_knows_its_targets_and_variables():
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    targets = re.search(r"(?m)^\.PHONY: (.*)$", makefile)[1].split()
    code = [*re.findall(r"`([^`\n]+)`", TEXT), *re.findall(r"(?m)^  (make .*)$", TEXT)]
    used = [
        found for words in code for found in re.findall(r"\bmake ([a-z-]+)((?: [A-Z]+=)?)", words)
    ]
    assert used and {target for target, _ in used} <= set(targets)
    assert all(variable in makefile for _, variable in used)


def test_the_text_to_send_says_what_the_programs_print():
    """An attendee compares the two."""
    text = section("## A text to send to attendees")
    set_up = (CHECKOUT / "tools" / "set_up.py").read_text(encoding="utf-8")
    for words in (
        "The environment is ready: make lab opens the first notebook.",
        "3.11, 3.12 or 3.13",
    ):
        assert words in " ".join(text.split()) and words in set_up
    check = (CHECKOUT / "src" / "ddp_workbook" / "cli.py").read_text(encoding="utf-8")
    assert "Ready." in check and "Ready" in text


def test_a_visitor_finds_it():
    """The README of the workbook links to it."""
    assert "](notebooks/README.md)" in (CHECKOUT / "README.md").read_text(encoding="utf-8")


def test_it_names_no_place_of_one_machine():
    """No absolute path but those that every Linux or WSL has."""
    paths = set(re.findall(r"(?<![\w./`)<])/[a-z]\w+[\w/.-]*", TEXT.replace("`", " ")))
    assert paths <= {"/dev/shm", "/mnt/c"}
