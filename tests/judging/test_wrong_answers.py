"""The cells in tests/wrong_answers, and every edit at every size: each gets its own words.

A push judges the wrong cells that get words of their exercise's own tables, as their reader meets
them: the check begins with the largest size and stops where it fails. One launch makes the calls of
all of them. On ranks, a cell that gets words of the engine hangs, keeps a result or does not wait:
test_exercise_faults.py has one of each kind. `--all` judges every edit and every wrong cell at
every size separately.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest

from ddp_workbook.judging import attempts, engine
from ddp_workbook.judging.catalogue import names
from ddp_workbook.judging.check import DistributedCheck, load
from ddp_workbook.judging.comparison import Comparison
from ddp_workbook.judging.judge import examine, judge
from ddp_workbook.judging.on_ranks import Calls, run_calls, run_variants
from ddp_workbook.judging.verdict import NOT_YET, SOLVED, Verdict
from tests.attempts import as_text, attempts_in_a_folder  # noqa: F401 (a fixture)
from tests.edits import EDITS, EXERCISES, exercise, pattern, stripped_lines
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)
from tools.wrong_answers import WrongAnswer, wrong_answers

pytestmark = pytest.mark.push("wrong answers")

# Words that the engine has for mistakes of any exercise: several wrong answers may get them.
ENGINE_ADVICE = (
    "Made first, this call is right",
    "still at work when your function returned",
    "which a later call has changed",
)
WRONG_ANSWERS = [wrong for exercise in EXERCISES.values() for wrong in wrong_answers(exercise)]
each_exercise = pytest.mark.parametrize("name", names())
each_size = pytest.mark.release("edits and wrong cells (those that hang, too), at each size")
each_wrong_answer = pytest.mark.parametrize(
    "wrong", WRONG_ANSWERS, ids=lambda wrong: f"{wrong.name}-{wrong.slug}"
)
each_edit = pytest.mark.parametrize(
    "wrong",
    [edited for rows in EDITS.values() for edited in rows],
    ids=lambda wrong: f"{wrong.name}-{wrong.slug.replace(' ', '_')}",
)


def judged_answers(name: str) -> list[WrongAnswer]:
    """The wrong cells of an exercise that a push judges."""
    check, own = load(name), [wrong for wrong in WRONG_ANSWERS if wrong.name == name]
    known = [*words_for_values(check), *check.errors.values()]
    return [wrong for wrong in own if not check.group or is_advised_by(wrong, known)]


def words_for_values(check: DistributedCheck) -> list[str]:
    """All that the check's tables say of what came back."""
    own = [words for comparison in check.comparisons for words in words_of(comparison)]
    return [words for words in (*dict(check.edits), *own) if isinstance(words, str)]


def words_of(comparison: Comparison) -> list:
    """The words for the patterns of a part, and its hints."""
    hints = comparison.hint.values() if isinstance(comparison.hint, dict) else [comparison.hint]
    return [*comparison.patterns, *hints]


def is_advised_by(wrong: WrongAnswer, words: list[str]) -> bool:
    """Whether what a wrong cell must be told is among these words."""
    return any(told in one for told in wrong.expected_words for one in words)


@cache
def verdict_on(wrong: WrongAnswer) -> Verdict:
    """The verdict as a reader meets it, at the largest size at which the answer is wrong.

    The calls come from the launch that all wrong cells share, if the cell has returned there. What
    that verdict does not tell, such as what a late rank shows, one of the cell's own must.
    """
    attempt = attempts.save(wrong.name, wrong.cell)
    if calls := calls_of_all(wrong.name).get(wrong.cell):
        with patch.object(engine, "run_calls", reuse_calls(calls)):
            verdict = judge(exercise(wrong.name), attempt)
        if verdict.kind == NOT_YET and holds_advice(wrong, verdict):
            return verdict
    return judge(exercise(wrong.name), attempt)


@cache
def calls_of_all(name: str) -> dict[str, Calls]:
    """By wrong cell, its calls at the largest size, of those cells that return in one launch."""
    check, attempt = load(name), attempts.Attempt(name, Path())
    known = words_for_values(check)  # a cell that gets words for an error would end the launch
    cells = [
        wrong.cell for wrong in judged_answers(name) if check.group and is_advised_by(wrong, known)
    ]
    results = run_variants(check, attempt, max(check.sizes, default=0), cells, launches=5)
    return {cell: calls for cell, calls in zip(cells, results, strict=True) if calls}


def reuse_calls(calls: Calls) -> Callable[..., Calls]:
    """In the place of `run_calls`: these are all calls of the attempt at the largest size."""

    def run_or_reuse(check, attempt, size, only=None, progress=""):
        if not progress or size != max(check.sizes, default=0):
            return run_calls(check, attempt, size, only, progress)
        attempt.ranks = size if check.group else 0
        return calls

    return run_or_reuse


def at_one_size(name: str, attempt: attempts.Attempt, size: int) -> Verdict:
    """The verdict of a check at one size."""
    return judge(exercise(name), attempt, sizes=(size,))


@each_exercise
def test_there_are_enough_wrong_answers_with_messages_of_their_own(name):
    messages = [wrong.expected_words for wrong in WRONG_ANSWERS if wrong.name == name]
    own = [
        parts for parts in messages if not any(a in part for a in ENGINE_ADVICE for part in parts)
    ]
    assert len(messages) + len(EDITS[name]) >= 4
    twice = [parts for parts in set(own) if own.count(parts) > 1]
    assert not twice, f"{name}: several cells are told this; split the entry, or drop a cell"
    assert all(all(len(part) >= 5 for part in parts) and parts for parts in messages)


def holds_advice(wrong: WrongAnswer, verdict: Verdict) -> bool:
    """Whether the verdict holds all that this answer must be told."""
    return all(words in as_text(verdict) for words in wrong.expected_words)


def leaked_lines(wrong: WrongAnswer, verdict: Verdict) -> list[str]:
    """Lines of the solution that the verdict gives away, and that the answer does not have."""
    known = stripped_lines(wrong.cell) | stripped_lines(exercise(wrong.name).stub)
    unknown = stripped_lines(exercise(wrong.name).solution) - known
    return [line for line in unknown if len(line) > 8 and line in repr(verdict)]


@each_exercise
def test_each_wrong_answer_gets_its_message_and_no_other_one(name):
    """And the verdict does not print the solution."""
    faults = {wrong.wrong: fault for wrong in judged_answers(name) if (fault := fault_of(wrong))}
    assert faults == {}


def fault_of(wrong: WrongAnswer) -> str:
    """What is not as it should be in the verdict on a wrong answer; "" if all is well."""
    verdict = verdict_on(wrong)
    others = [
        other
        for other in judged_answers(wrong.name)
        if other.expected_words != wrong.expected_words and holds_advice(other, verdict)
    ]
    if (
        verdict.kind != NOT_YET
        or verdict.rows[-1][0] != "look at"
        or not holds_advice(wrong, verdict)
    ):
        return repr(verdict)
    if others:
        return f"it also gets the message of: {[other.wrong for other in others]}. {verdict!r}"
    return f"it gives away {lines}" if (lines := leaked_lines(wrong, verdict)) else ""


@each_size
@each_edit
def test_an_edit_gets_its_words_as_a_reader_meets_them(wrong):
    """And the verdict does not print the solution."""
    verdict = verdict_on(wrong)
    assert verdict.kind == NOT_YET, repr(verdict)
    assert re.fullmatch(pattern(wrong.expected_words[0]), verdict.rows[-1][1]), repr(verdict)
    assert leaked_lines(wrong, verdict) == []


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


@each_exercise
def test_every_condition_of_the_table_is_met_by_a_wrong_answer(name):
    """Edits are their own wrong answers; what several exercises share, the first one proves."""
    earlier = [one for other in names()[: names().index(name)] for one in conditions(other)]
    unmet, some = {*conditions(name)} - {*earlier}, judged_answers(name)
    for wrong in [
        *some,
        *(wrong for wrong in WRONG_ANSWERS if wrong.name == name and wrong not in some),
    ]:
        advice = verdict_on(wrong).rows[-1][1] if unmet else ""
        unmet -= {words for words in unmet if re.fullmatch(pattern(words), advice)}
    assert not unmet, f"{name}: no wrong answer is told this"


def conditions(name: str) -> list[str]:
    """The words of the conditions in the table of a check."""
    return [*dict.fromkeys(w for c in exercise(name).check.comparisons for w in c.patterns)]


@each_size
@each_wrong_answer
def test_a_wrong_answer_gets_its_message_at_every_size(wrong):
    """In checks of one size each; where `# right at:` names the size, it passes."""
    attempt = attempts.save(wrong.name, wrong.cell)
    for size in exercise(wrong.name).check.sizes:
        verdict = at_one_size(wrong.name, attempt, size)
        if size in wrong.right_at:
            assert verdict.kind == SOLVED, f"right at {size}, it says: {verdict!r}"
            continue
        assert verdict.kind == NOT_YET, f"passes at {size}"
        assert verdict.rows[-1][0] == "look at"
        assert holds_advice(wrong, verdict), f"at {size}: {verdict!r}"
        assert leaked_lines(wrong, verdict) == []
