"""Every exercise: the stub, the solution, and the wrong answers in tests/wrong_answers/<name>.

A wrong answer is a whole cell. Its first lines say what is wrong, what the verdict must tell (all
of it), and at which sizes, if at any, it is right all the same:

    # wrong: adds up and does not divide
    # told: This is the sum over the ranks
    # right at: 1

If the solution is long, a wrong answer is a .diff against it: below the same first lines, those to
remove, with -, and those to insert, with +. Unchanged lines around them, with a blank, say where.

A push judges each wrong answer as its reader meets it: the check begins with the largest size and
stops where it fails. `--all` judges it, and the solution, at every size separately.
"""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from ddp_workbook.exercises import CHAPTERS
from ddp_workbook.exercises.judging import attempts
from ddp_workbook.exercises.judging.catalogue import FOLDER, Exercise, names
from ddp_workbook.exercises.judging.check import When
from ddp_workbook.exercises.judging.judge import examine, judge
from ddp_workbook.exercises.judging.verdict import NOT_ATTEMPTED, NOT_YET, SOLVED, Verdict
from tests.leftovers import no_rank_left  # noqa: F401 (a fixture)
from tests.test_layout import notebook, source
from tools.new_exercise import cell_of, minutes_of, page, slug, task_of

WRONG = Path(__file__).parent / "wrong_answers"


@dataclass(frozen=True)
class WrongAnswer:
    """One file of wrong_answers."""

    name: str
    path: Path

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def cell(self) -> str:
        """What a reader would have in the cell."""
        return cell_of(self.path, exercise(self.name).solution)

    def said(self, key: str) -> list[str]:
        """What its first lines say under `key`."""
        return re.findall(rf"^# {key}: (.*)$", self.text, flags=re.M)

    @property
    def told_by_engine(self) -> bool:
        """Whether its words are the engine's own, which others may get as well."""
        return any(words in told for words in OF_THE_ENGINE for told in self.said("told"))

    @property
    def right_at(self) -> set[int]:
        """Sizes at which it is right."""
        return {int(number) for line in self.said("right at") for number in line.split(",")}


# Words that the engine has for mistakes of any exercise: several wrong answers may get them.
OF_THE_ENGINE = (
    "Made first, this call is right",
    "still at work when your function returned",
    "which a later call has changed",
)
WRONG_ANSWERS = [
    WrongAnswer(name, path) for name in names() for path in sorted((WRONG / name).glob("*.*"))
]
each_exercise = pytest.mark.parametrize("name", names())
each_size = pytest.mark.release("solutions and wrong answers, each at every size separately")
each_wrong_answer = pytest.mark.parametrize(
    "wrong", WRONG_ANSWERS, ids=lambda wrong: f"{wrong.name}-{wrong.path.stem}"
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Attempts are saved below the current folder."""
    monkeypatch.chdir(tmp_path)


@cache
def exercise(name: str) -> Exercise:
    return Exercise(name)


@cache
def judged(wrong: WrongAnswer) -> Verdict:
    """The verdict as a reader meets it, at the largest size at which the answer is wrong."""
    return judge(exercise(wrong.name), attempts.save(wrong.name, wrong.cell))


def at_one_size(name: str, attempt: attempts.Attempt, size: int) -> Verdict:
    """The verdict of a check at one size."""
    return judge(exercise(name), attempt, sizes=(size,))


def as_text(verdict: Verdict) -> str:
    """The verdict without line breaks, because a message may be wrapped."""
    return " ".join(repr(verdict).split())


def test_every_file_is_an_exercise_of_some_chapter():
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert files == set(names())
    assert len(names()) == len(set(names()))


@each_exercise
def test_the_stub_is_not_attempted_and_not_saved(name, tmp_path):
    verdict = examine(exercise(name), exercise(name).stub)
    assert verdict.kind == NOT_ATTEMPTED
    assert "not attempted yet" in repr(verdict)
    assert list(tmp_path.iterdir()) == []


@each_exercise
def test_the_solution_passes(name):
    verdict = examine(exercise(name), exercise(name).solution)
    assert verdict.kind == SOLVED, repr(verdict)
    assert "\n" not in repr(verdict), f"it prints; a deprecated call? {verdict!r}"
    assert re.search(r"\d", verdict.title), "it says what was verified: sizes, shapes, bytes"


@each_size
@each_exercise
def test_the_solution_passes_at_each_size(name):
    """At one size after the other, each in a check of its own."""
    attempt = attempts.save(name, exercise(name).solution)
    for size in exercise(name).sizes:
        verdict = at_one_size(name, attempt, size)
        assert verdict.kind == SOLVED, repr(verdict)


@each_exercise
def test_the_task_is_said_and_no_hint_is_the_solution(name):
    """The docstring is the task, the stub has one place to fill, hints hold no line of the code."""
    text, module = exercise(name).text, exercise(name).module
    region = re.search(r"### BEGIN SOLUTION\n(.*?)### (?:GIVEN|END)", text, flags=re.S)[1]
    assert ast.get_docstring(ast.parse(text))
    assert ast.get_docstring(ast.parse(exercise(name).stub).body[-1])
    assert exercise(name).stub.count("TODO") == 1
    assert module.HINTS
    assert not [line for line in stripped(region) - {""} for one in module.HINTS if line in one]
    assert not exercise(name).sizes or set(exercise(name).sizes) >= {1, 2, 3, 4}


@each_exercise
def test_the_notebook_holds_task_and_stub(name):
    """Both are written once, in the exercise's file; number and minutes stand in the heading."""
    path = page(next(stem for stem, listed in CHAPTERS.items() if name in listed))
    remedy = f"{path.stem}, exercise {name}: run `python -m tools.new_exercise {name} --sync`"
    cells = {cell["id"]: source(cell) for cell in notebook(path)["cells"]}
    own = f"ex-{slug(name)}"
    listed = next(listed for listed in CHAPTERS.values() if name in listed)
    number = f"{listed.index(name) + 1}. " * (len(listed) > 1)
    heading, _, task = cells.get(f"{own}-task", "").partition("\n")
    assert cells.get(own, "").strip() == f"%%exercise {name}\n{exercise(name).stub}".strip(), remedy
    assert " ".join(task.split()) == " ".join(task_of(name).split()), remedy
    assert heading.startswith(f"### {number}") and heading.endswith(f"({minutes_of(name)} min)"), (
        remedy
    )
    assert cells.get(f"{own}-hint") == f'hint("{name}")', remedy
    assert cells.get(f"{own}-solution") == f'solution("{name}")', remedy


@pytest.mark.parametrize("stem", CHAPTERS)
def test_the_exercises_stand_on_the_page_in_their_order(stem):
    ids = [cell["id"] for cell in notebook(page(stem))["cells"]]
    cells = [
        f"ex-{slug(name)}{part}"
        for name in CHAPTERS[stem]
        for part in ("-task", "", "-hint", "-solution")
    ]
    assert [one for one in ids if one in cells] == cells, f"move the cells of {page(stem).stem}"


@each_exercise
def test_there_are_four_wrong_answers_with_messages_of_their_own(name):
    answers = [wrong for wrong in WRONG_ANSWERS if wrong.name == name]
    told = [tuple(wrong.said("told")) for wrong in answers]
    own = [words for wrong, words in zip(answers, told, strict=True) if not wrong.told_by_engine]
    assert len(told) >= 4
    twice = [words for words in set(own) if own.count(words) > 1]
    assert not twice, f"{name}: several files are told this; split the entry, or drop a file"
    assert all(all(len(words) >= 5 for words in one) and one for one in told)


def tells(wrong: WrongAnswer, verdict: Verdict) -> bool:
    """Whether the verdict holds all that this answer must be told."""
    return all(words in as_text(verdict) for words in wrong.said("told"))


def secrets(wrong: WrongAnswer, verdict: Verdict) -> list[str]:
    """Lines of the solution that the verdict gives away, and that the answer does not have."""
    known = stripped(wrong.cell) | stripped(exercise(wrong.name).stub)
    unknown = stripped(exercise(wrong.name).solution) - known
    return [line for line in unknown if len(line) > 8 and line in repr(verdict)]


@each_wrong_answer
def test_a_wrong_answer_gets_its_message(wrong):
    """And the verdict does not print the solution."""
    verdict = judged(wrong)
    assert verdict.kind == NOT_YET, repr(verdict)
    assert verdict.rows[-1][0] == "look at"
    assert tells(wrong, verdict), repr(verdict)
    assert secrets(wrong, verdict) == []


@pytest.mark.parametrize(
    "value",
    [
        "None",
        *(
            pytest.param(value, marks=pytest.mark.release("other values that come back"))
            for value in ("'text'", "0.5", "torch.zeros(2)", "[(), {}]")
        ),
    ],
)
@each_exercise
def test_whatever_comes_back_the_check_can_use_it(name, value):
    """A check that stumbles over a value blames the attempt for it."""
    arguments = "*arguments, **named"
    cell = f"import torch\n\n\ndef {name}({arguments}):\n    return {value}\n"
    assert "the check cannot use" not in repr(examine(exercise(name), cell))


@each_wrong_answer
def test_a_wrong_answer_does_not_get_the_message_of_another(wrong):
    others = [
        one
        for one in WRONG_ANSWERS
        if one.name == wrong.name and one != wrong and not one.told_by_engine
    ]
    verdict = judged(wrong)
    assert [one.path.stem for one in others if tells(one, verdict)] == [], repr(verdict)


@each_exercise
def test_every_condition_of_the_table_is_met_by_a_wrong_answer(name):
    """Of entries that give a value, test_check_tables.py plays each."""
    told = [judged(wrong).rows[-1][1] for wrong in WRONG_ANSWERS if wrong.name == name]
    never = [
        words
        for look in exercise(name).module.CHECK.looks
        for words, mistake in look.mistakes.items()
        if isinstance(mistake, When) and not any(re.fullmatch(pattern(words), one) for one in told)
    ]
    assert never == [], f"{name}: no wrong answer is told this"


def pattern(words: str) -> str:
    """The words with any number in place of {rank}."""
    return re.sub(r"\\\{\w+\\\}", r"\\d+", re.escape(words))


@each_size
@each_wrong_answer
def test_a_wrong_answer_gets_its_message_at_every_size(wrong):
    """In checks of one size each; where `# right at:` names the size, it passes."""
    attempt = attempts.save(wrong.name, wrong.cell)
    for size in exercise(wrong.name).sizes:
        verdict = at_one_size(wrong.name, attempt, size)
        if size in wrong.right_at:
            assert verdict.kind == SOLVED, f"right at {size}, it says: {verdict!r}"
            continue
        assert verdict.kind == NOT_YET, f"passes at {size}"
        assert verdict.rows[-1][0] == "look at"
        assert tells(wrong, verdict), f"at {size}: {verdict!r}"
        assert secrets(wrong, verdict) == []


def stripped(code: str) -> set[str]:
    """The lines of some code, without margin."""
    return {line.strip() for line in code.splitlines()}
