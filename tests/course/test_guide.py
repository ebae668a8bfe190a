"""The instructor's guide, notebooks/README.md: what it names exists, and its plans fit."""

import ast
import re
from itertools import takewhile

import nbformat
import pytest

from ddp_workbook.page import pages
from ddp_workbook.workshop import timetable
from tools import minutes
from tools.minutes import GUIDE
from tools.set_up import ROOT

TEXT = GUIDE.read_text(encoding="utf-8")
CORE = [path for path in pages.all_pages() if pages.FURTHER not in path.stem]
PLANS = timetable.plans(TEXT)
LEFT_OUT = [
    *((row.page, row.omissions) for _, rows in PLANS.values() for row in rows if row.omissions),
    *((pages.find_pages([cut.stem])[0], cut.words) for cut in timetable.cuts(TEXT)),
]


def section(heading: str) -> str:
    """What stands under this heading, up to the next one of the same level or a higher one."""
    _, found, after = TEXT.partition(f"\n{heading}\n")
    assert found, f"there is no heading {heading!r}"
    level = len(heading.partition(" ")[0])
    return re.split(rf"(?m)^#{{1,{level}}} ", after)[0]


# The plans


def test_all_minutes_and_clock_times_are_as_computed_and_everything_fits():
    """Those of pages, of the README's tables and of the guide's plans."""
    known = timetable.all_minutes()
    stale = [
        path for path, text in minutes.updated_texts(known).items() if text != path.read_text()
    ]
    assert stale == [], "run `python -m tools.new_exercise --sync`"
    assert [*minutes.too_long(known)] == []


def test_a_plan_names_its_parts_and_its_end():
    """So that the clock in it can be computed."""
    for _, rows in PLANS.values():
        assert rows[-1].what == "End" and all(row.length or row is rows[-1] for row in rows)
        assert rows[0].length >= timetable.SET_UP


def test_there_are_plans_for_ninety_minutes_half_a_day_and_two_days():
    """Half a day is chapters 00 to 05; two days take every chapter, in five to six hours a day."""
    assert [limit for limit, _ in PLANS.values()] == [90, 240, 480, 480]
    stems = [[row.page.stem for row in rows if row.page] for _, rows in PLANS.values()]
    assert stems[1] == [path.stem for path in CORE if path.stem < "06"]
    assert {path.stem for path in CORE} <= {*stems[2], *stems[3]}
    for _, (*_, end) in [*PLANS.values()][2:]:
        assert 300 <= end.teaching + end.exercises <= 360


@pytest.mark.parametrize("heading", PLANS)
def test_a_plan_takes_a_page_once_and_its_chapter_first(heading):
    """Unless the chapter was on an earlier day."""
    stems = [row.page.stem for row in PLANS[heading][1] if row.page]
    core = [stem for stem in stems if pages.FURTHER not in stem]
    assert len(stems) == len(set(stems)) and core == sorted(core)
    for place, stem in enumerate(stems):
        assert stem in core or stem[:2] in {one[:2] for one in stems[:place]}


@pytest.mark.parametrize(("path", "words"), LEFT_OUT, ids=lambda one: getattr(one, "stem", ""))
def test_what_is_left_out_is_there_and_the_rest_runs_without_it(path, words):
    """No later cell uses a name that only a left-out cell defines."""
    cells = nbformat.read(path, as_version=4).cells
    ids = [cell.id for cell in cells]
    gone = {
        one
        for first, last in timetable.spans(words)
        for one in ids[ids.index(first) : ids.index(last) + 1]
    }
    own = {name for name, _ in pages.exercises(pages.load(path))}
    assert {*re.findall(r"`([a-z_]+)`", words)} <= own and (gone or "exercise" in words)
    known, lost = set(), set()
    for cell in cells:
        if cell.cell_type != "code" or cell.source.startswith("%"):
            continue
        names = [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name)]
        stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        if cell.id in gone:
            lost |= stored - known
        else:
            used = {node.id for node in names} - stored
            assert not used & lost, f"{cell.id} needs {used & lost}"
            known, lost = known | stored, lost - stored


# The chapters


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.stem)
def test_each_chapter_has_its_section(path):
    """A goal, a moment and two questions to discuss on its page, answers, a mistake, cuts."""
    page = pages.load(path)
    words = section(f"### {pages.title(page)}")
    marks = "Goal.", "Moment.", "Discuss", "Questions", "Typical mistake", "If you are late"
    parts = "(.*)".join(re.escape(f"**{mark}**") for mark in marks)
    found = re.search(rf"(?s){parts}", words)
    goal, moment, discuss, questions, mistake = found.groups()
    assert goal.strip().endswith(".") and f"({path.name}#cell-id=" in moment
    asked = re.findall(r"(?m)^- \*.*\?\* [`\w]", questions)
    assert 3 <= len(asked) <= 5 and len(asked) == questions.count("\n- ")
    own = {name for name, _ in pages.exercises(page)}
    assert set(re.findall(r"[Ii]n\s`(\w+)`", mistake)) == own
    to_ask = re.findall(rf"(?m)^- \[.*\]\({path.name}#cell-id=([\w-]+)\).*\*.*\?\*$", discuss)
    assert len(to_ask) == timetable.QUESTION_COUNT and all(
        is_predicted(page, cell) for cell in to_ask
    )
    assert any(cut.stem == path.stem and cut.minutes > 0 for cut in timetable.cuts(late_of(path)))


def late_of(path) -> str:
    """The chapter's section, with its heading."""
    title = f"### {pages.title(pages.load(path))}"
    return f"{title}\n{section(title)}"


def is_predicted(page: dict, cell: str) -> bool:
    """Whether a question is asked between this cell and the text before it."""
    ids = [one["id"] for one in page["cells"]]
    before = reversed(page["cells"][: ids.index(cell)])
    code = takewhile(lambda one: one["cell_type"] == "code", before)
    return any(pages.PREDICT_CALL.match(pages.source(one)) for one in code)


def test_the_text_to_send_says_what_the_programs_print():
    """An attendee compares the two."""
    text = section("## A text to send to attendees")
    set_up = (ROOT / "tools" / "set_up.py").read_text(encoding="utf-8")
    ready = "The environment is ready: make lab opens the first notebook."
    for words in (ready, "3.11, 3.12 or 3.13"):
        assert words in " ".join(text.split()) and words in set_up
    check = (ROOT / "src/ddp_workbook/workshop/commands.py").read_text(encoding="utf-8")
    assert "Ready." in check and "Ready" in text
