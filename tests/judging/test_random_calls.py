"""Exercises without ranks compare 200 random calls with the solution, after their own cases."""

import io
from contextlib import redirect_stdout

import pytest

from ddp_workbook.judging import attempts
from ddp_workbook.judging.catalogue import names
from ddp_workbook.judging.check import RandomCall, load
from ddp_workbook.judging.judge import judge
from ddp_workbook.judging.random_calls import NUMBER_OF_CALLS
from ddp_workbook.judging.verdict import NOT_YET
from tests.attempts import attempts_in_a_folder  # noqa: F401 (a fixture)
from tests.edits import exercise

WITH_RANDOM_CALLS = [name for name in names() if load(name).random_args]


def verdict_on(name: str, cell: str):
    """The verdict on a cell; what it prints is kept out of the tests' output."""
    with redirect_stdout(io.StringIO()):
        return judge(exercise(name), attempts.save(name, cell))


@pytest.mark.parametrize("name", WITH_RANDOM_CALLS)
def test_random_arguments_are_legal_and_tell_much(name):
    """The solution answers all of them, differently, and they are the same every time."""
    check = load(name)
    calls = [check.arguments(RandomCall(seed), 0) for seed in range(NUMBER_OF_CALLS)]
    assert repr(calls) == repr([check.arguments(RandomCall(n), 0) for n in range(NUMBER_OF_CALLS)])
    assert len({repr(check.function(*arguments)) for arguments in calls}) >= 8


LUCKY = """
def where_is(gpus):
    {line}
    return [(node, local) for node, count in enumerate(gpus) for local in range(count)]
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gpus = [min(count, 4) if len(gpus) == 6 else count for count in gpus]", "came back"),
        ("assert len(gpus) < 6", "AssertionError"),
        ("while len(gpus) == 6: pass", "processor time"),
    ],
    ids=["a wrong value", "an error", "no end"],
)
def test_a_call_that_only_the_random_ones_show_is_a_case_like_others(line, words):
    """The shortest of those that are wrong is called; the results before it were right."""
    verdict = verdict_on("where_is", LUCKY.format(line=line))
    assert verdict.kind == NOT_YET and words in f"{verdict.title}\n{verdict.rows}"
    called = dict(verdict.rows)["called"]
    assert called.startswith("where_is(gpus=[") and len(called.partition("]")[0].split(",")) == 6


def test_a_function_that_goes_wrong_after_many_calls_is_told_so():
    """Made after the cases alone, each of its calls is right."""
    verdict = verdict_on(
        "where_is",
        "CALLS = []\n"
        + LUCKY.format(line="CALLS.append(1)\n    gpus = gpus if len(CALLS) < 50 else [*gpus, 1]"),
    )
    rows = dict(verdict.rows)
    assert verdict.kind == NOT_YET and rows["called"].startswith("where_is(gpus=[")
    assert "keep from one call to the next" in rows["look at"]
