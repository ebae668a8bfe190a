"""Every exercise: the stub, the solution, its place on its page, and what its table says of edits.

The solutions on core pages are run by test_notebooks.py, in cells as their readers'. What is wrong
in another way is in test_wrong_answers.py.
"""

import ast
import re
from pathlib import Path

import pytest

from ddp_workbook.judging import attempts
from ddp_workbook.judging.catalogue import CHAPTERS, names
from ddp_workbook.judging.check import DistributedCheck, load
from ddp_workbook.judging.comparison import Observation
from ddp_workbook.judging.diagnosis import mismatches
from ddp_workbook.judging.judge import examine
from ddp_workbook.judging.on_ranks import run_variants
from ddp_workbook.judging.reasons import Extent, Reasons
from ddp_workbook.judging.source import FOLDER
from ddp_workbook.judging.verdict import NOT_ATTEMPTED, SOLVED
from ddp_workbook.page import pages
from ddp_workbook.workshop.minutes import of_exercise
from tests.attempts import as_text, attempts_in_a_folder  # noqa: F401 (a fixture)
from tests.edits import EDITS, exercise, pattern, stripped_lines
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)
from tools.new_exercise import page_of, slug, task_of

each_exercise = pytest.mark.parametrize("name", names())
ON_FURTHER_PAGES = [
    name for stem, exercises in CHAPTERS.items() if "further" in stem for name in exercises
]


def test_every_file_is_an_exercise_of_some_chapter():
    files = {path.stem for path in FOLDER.glob("*/*.py")} - {"__init__"}
    assert files == set(names())
    assert len(names()) == len(set(names()))


@each_exercise
def test_the_stub_is_not_attempted_and_not_saved(name, tmp_path):
    verdict = examine(exercise(name), exercise(name).stub)
    assert verdict.kind == NOT_ATTEMPTED
    assert "not attempted yet" in repr(verdict)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("name", ON_FURTHER_PAGES)
def test_the_solution_passes(name):
    verdict = examine(exercise(name), exercise(name).solution)
    assert verdict.kind == SOLVED, repr(verdict)
    assert "\n" not in repr(verdict), f"it prints; a deprecated call? {verdict!r}"
    assert re.search(r"\d", verdict.title), "it says what was verified: sizes, shapes, bytes"


@each_exercise
def test_the_task_is_said_and_no_hint_is_the_solution(name):
    """The docstring is the task, the stub has one place to fill, hints hold no line of the code."""
    text, module = exercise(name).text, exercise(name).module
    region = re.search(r"### BEGIN SOLUTION\n(.*?)### (?:GIVEN|END)", text, flags=re.S)[1]
    assert ast.get_docstring(ast.parse(text))
    assert ast.get_docstring(ast.parse(exercise(name).stub).body[-1])
    assert exercise(name).stub.count("TODO") == 1
    assert "ddp_workbook" not in exercise(name).solution, "a name of the check is one of its names"
    assert module.HINTS
    assert not [
        line for line in stripped_lines(region) - {""} for hint in module.HINTS if line in hint
    ]
    assert not exercise(name).check.sizes or set(exercise(name).check.sizes) >= {1, 2, 3, 4}


@each_exercise
def test_the_notebook_holds_task_and_stub(name):
    """Both are written once, in the exercise's file; number and minutes stand in the heading."""
    path = page_of(next(stem for stem, exercises in CHAPTERS.items() if name in exercises))
    remedy = f"{path.stem}, exercise {name}: run `python -m tools.new_exercise --sync`"
    cells = {cell["id"]: pages.source(cell) for cell in pages.load(path)["cells"]}
    own = f"ex-{slug(name)}"
    exercises = next(exercises for exercises in CHAPTERS.values() if name in exercises)
    number = f"{exercises.index(name) + 1}. " if len(exercises) > 1 else ""
    heading, _, task = cells.get(f"{own}-task", "").partition("\n")
    assert cells.get(own, "").strip() == f"%%exercise {name}\n{exercise(name).stub}".strip(), remedy
    assert " ".join(task.split()) == " ".join(task_of(name).split()), remedy
    assert heading.startswith(f"### {number}") and heading.endswith(f"({of_exercise(name)} min)"), (
        remedy
    )
    assert cells.get(f"{own}-hint") == f'hint("{name}")', remedy
    assert cells.get(f"{own}-solution") == f'solution("{name}")', remedy


@pytest.mark.parametrize("stem", CHAPTERS)
def test_the_exercises_stand_on_the_page_in_their_order(stem):
    ids = [cell["id"] for cell in pages.load(page_of(stem))["cells"]]
    cells = [
        f"ex-{slug(name)}{part}"
        for name in CHAPTERS[stem]
        for part in ("-task", "", "-hint", "-solution")
    ]
    assert [cell_id for cell_id in ids if cell_id in cells] == cells, (
        f"move the cells of {page_of(stem).stem}"
    )


@pytest.mark.long
@each_exercise
def test_each_edit_gets_its_own_words(name):
    """At the largest size at which it is wrong: no earlier row explains its calls."""
    check, attempt = load(name), attempts.Attempt(name, Path())
    remaining = [(row, edited.cell) for row, edited in enumerate(EDITS[name])]
    for size in sorted(check.sizes, reverse=True) or [0]:
        cells = [cell for _, cell in remaining]
        results = run_variants(check, attempt, size, cells)
        known = dict(zip(cells, results, strict=True))
        wrong = []
        for (row, cell), calls in zip(remaining, results, strict=True):
            [words] = EDITS[name][row].expected_words
            assert calls is not None, f"{name}, row {row} raises or does not end: {words}"
            if advice := advice_by_table(check, calls, known):
                known_as = f"{name}, row {row} ({words}) cannot be told from: {advice}"
                assert re.fullmatch(pattern(words), advice), known_as
                wrong.append(cell)
        remaining = [(row, cell) for row, cell in remaining if cell not in wrong]
    not_noticed = [EDITS[name][row].expected_words for row, _ in remaining]
    assert not remaining, f"{name}: no comparison finds anything wrong: {not_noticed}"


def advice_by_table(
    check: DistributedCheck, calls: list[list[Observation]], known: dict[str, list]
) -> str:
    """What the first look that finds something wrong says of these calls; "" if all is right."""

    def run(cells: list[str], only: int | None = None) -> list:
        results = [known.get(cell) for cell in cells]
        return [
            calls_of_cell and (calls_of_cell if only is None else [calls_of_cell[only]])
            for calls_of_cell in results
        ]

    for comparison in check.comparisons:
        if bad := mismatches(comparison, calls):
            words = Reasons(check, comparison, bad[0], calls, run).best(Extent.ALL_VALUES)
            return words or f"no words: {bad[0].value!r} instead of {bad[0].expected!r}"
    return ""
