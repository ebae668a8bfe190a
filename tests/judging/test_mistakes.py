"""Mistakes as edits of the solution: which one explains an attempt, and what a call has changed."""

from pathlib import Path

import pytest
import torch
from torch import nn

from ddp_workbook.judging import (
    Comparison,
    Observation,
    Pattern,
    SingleProcessCheck,
    body,
    edit,
    engine,
)
from ddp_workbook.judging.attempts import Attempt
from ddp_workbook.judging.catalogue import find
from ddp_workbook.judging.check import Edit, load
from ddp_workbook.judging.diagnosis import mismatches
from ddp_workbook.judging.equality import number_in, values_equal
from ddp_workbook.judging.judge import examine
from ddp_workbook.judging.on_ranks import observations, run_variants
from ddp_workbook.judging.reasons import Extent, Reasons
from ddp_workbook.judging.snapshots import change, snapshot
from ddp_workbook.judging.values import first_difference
from tests.leaks import no_rank_left  # noqa: F401 (a fixture)

SOLUTION = '''def double_sum(numbers):
    """The doubled sum of the numbers."""
    total = 0
    for number in numbers:
        total += number
    return 2 * total
'''
ONE, TWO, FIRST = "Is it doubled?", "Where does the sum begin?", "Which numbers are left out?"
MISTAKES = {
    ONE: edit("2 * total", "total"),
    TWO: edit("total = 0", "total = 1"),
    "Does it raise?": edit("total = 0", "total = None"),
    FIRST: edit("in numbers", "in numbers[1:]"),
    "The same once more.": edit("2 * total", "total * 1"),
}
CASES = [[5], [1, 2, 3], [], [4, 4]]


def check_of(mistakes: dict, **others) -> SingleProcessCheck:
    """A check of `double_sum`."""
    compare = Comparison("Something else.", lambda case: 2 * sum(case))
    others = {"compare": compare} | others
    return SingleProcessCheck(cases=CASES, mistakes=mistakes, on_pass="4 sums", **others)


def calls_of(cell: str) -> list[list[Observation]] | None:
    """What a cell gives in all calls; None if it raises."""
    names = {}
    exec(cell, names)
    try:
        actual = [names["double_sum"](case) for case in CASES]
    except TypeError:
        return None
    return observations(check_of({}), 0, [[[{"actual": value}] for value in actual]])


def reasons(cell: str, check: SingleProcessCheck) -> Reasons:
    """Of an attempt at `double_sum`, without a rank."""

    def run(cells: list[str], only: int | None = None) -> list:
        results = map(calls_of, cells)
        return [
            calls_of_cell and (calls_of_cell if only is None else [calls_of_cell[only]])
            for calls_of_cell in results
        ]

    calls = calls_of(cell)
    [comparison] = check.comparisons
    check.solution = SOLUTION
    return Reasons(check, comparison, mismatches(comparison, calls)[0], calls, run)


def attempt(expression: str) -> str:
    """A cell that is no edit of the solution."""
    return f"def double_sum(numbers):\n    return {expression}\n"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("sum(numbers)", ONE),  # and not the other entry that gives the same
        ("2 + 2 * sum(numbers)", TWO),
        ("2 * sum(numbers[1:])", FIRST),
        ("2 * sum(numbers) if len(numbers) > 1 else 7", ""),  # like nothing in the table
        ("sum(numbers) if len(numbers) == 1 else 2 * sum(numbers)", ""),  # right after that
    ],
)
def test_an_edit_must_give_all_that_was_seen(expression, words):
    assert reasons(attempt(expression), check_of(MISTAKES)).best(Extent.ALL_VALUES) == words


def test_two_mistakes_at_once_are_both_named():
    explanations = reasons(attempt("1 + sum(numbers)"), check_of(MISTAKES))
    assert explanations.best(Extent.ALL_VALUES) == ""
    assert explanations.two_edits() == f"{ONE}\n{TWO}"


def test_two_edits_of_the_same_words_are_no_pair():
    explanations = reasons(attempt("7 * sum(numbers)"), check_of(MISTAKES))
    assert explanations.best(Extent.UP_TO_FAILURE) == explanations.two_edits() == ""


def test_a_mistake_that_another_call_refutes_has_no_words():
    """It explains the first wrong call, by chance; what is known of that call's value is said."""
    when = {"Is it {rank}?": Pattern(lambda obs: obs.value == 5)}
    cell = attempt("sum(numbers) if len(numbers) == 1 else 3")
    explanations = reasons(cell, check_of(MISTAKES | when))
    assert explanations.best(Extent.UP_TO_FAILURE) == ""
    assert engine.pattern_hint(explanations.comparison, explanations.bad) == "Is it 0?"


def test_several_edits_may_have_the_same_words():
    both = {ONE: [edit("2 * total", "3 * total"), edit("2 * total", "total")]}
    assert reasons(attempt("sum(numbers)"), check_of(both)).best(Extent.ALL_VALUES) == ONE


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (edit("is not there", ""), "'is not there' is not in the solution"),
        (edit("total", ""), "'total' is there 3 times"),
        (edit("2 * total", "total", "2 * total", ""), "'2 \\* total' is not in the solution"),
    ],
)
def test_an_edit_that_does_not_fit_the_solution_says_so(mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake.apply(SOLUTION)


def test_another_body_stands_below_the_docstring():
    cell = body("""
        for number in numbers:
            return number
    """).apply(SOLUTION)
    head = "".join(SOLUTION.splitlines(keepends=True)[:2])
    assert cell == f"{head}    for number in numbers:\n        return number\n"
    assert (body("return 1") + edit("return 1", "return 2")).apply(SOLUTION).endswith("return 2\n")


def test_a_pattern_is_about_a_part_that_is_compared():
    with pytest.raises(ValueError, match=r"a pattern is about \{'sums'\}"):
        check_of({"What?": Pattern(bool, "sums")}, compare={"sum": "Why?"}).comparisons  # noqa: B018


def test_edited_solutions_run_together_and_one_that_hangs_spoils_nothing():
    """Nor does one that raises; each is told by its place."""
    check = load("mean_over_ranks")
    edits = [
        edit(" / dist.get_world_size()", ""),
        edit("dist.all_reduce(total)", "dist.get_rank() and dist.all_reduce(total)"),
        edit("total.item()", "total.items()"),
        Edit(()),
    ]
    cells = [mistake.apply(check.solution) for mistake in edits]
    results = run_variants(check, Attempt(check.name, Path()), 2, cells)
    assert [result and result[0][0].actual for result in results] == [12.25, None, None, 6.125]
    assert results[3][0][0].ops == ["all_reduce"]


CELL = """
import torch
import torch.distributed as dist
from pathlib import Path


def mean_over_ranks(value):
    total = torch.tensor(value)
    dist.all_reduce(total)
    once = Path("once{}")
    if value in (-2.25, -8.6) and not once.exists():
        once.touch()
        return 1.0
    return total.item() / dist.get_world_size()
"""


def test_what_was_wrong_once_depends_on_chance(tmp_path, monkeypatch):
    """And not on what the function keeps: made again, the whole series is right."""
    monkeypatch.chdir(tmp_path)
    verdict = examine(find("mean_over_ranks"), CELL.replace("{}", ""))
    assert verdict.rows[-1][1] != engine.KEEPS_STATE
    (tmp_path / "once").unlink()
    later = CELL.replace("{}", "").replace("(-2.25, -8.6)", "(-2.75,)")
    verdict = examine(find("mean_over_ranks"), later)
    assert verdict.rows[-1][1] == engine.NONDETERMINISTIC, verdict


def a_module() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))


@pytest.mark.parametrize(
    ("make", "act", "words"),
    [
        (lambda: torch.ones(4), lambda x: x.mul_(2), "x"),
        (lambda: torch.ones(4), lambda x: x.resize_(2), "the shape of x"),
        (lambda: torch.ones(4), lambda x: x.unsqueeze_(1), "the shape of x"),
        (lambda: torch.ones(2, 2), lambda x: x.t_(), "the strides of x"),
        (lambda: torch.ones(4), lambda x: setattr(x, "data", x.clone()), "which memory x uses"),
        (lambda: torch.ones(4), lambda x: x.requires_grad_(), "x.requires_grad"),
        (lambda: torch.ones(4), lambda x: setattr(x, "grad", x.clone()), "x.grad"),
        (lambda: [torch.ones(4)], lambda x: x[0].zero_(), "x"),
        (lambda: [1, 2], lambda x: x.append(3), "x"),
        (lambda: {"a": torch.ones(1)}, lambda x: x["a"].zero_(), "x.a"),
        (a_module, lambda x: x[1].running_mean.add_(1), "x.1.running_mean"),
        (a_module, lambda x: x.eval(), "x.training"),
        (a_module, lambda x: x.requires_grad_(False), "x.0.weight.requires_grad"),
        (a_module, lambda x: x[0].register_forward_hook(print), "x.0.hooks"),
        (a_module, lambda x: x[1].weight.sum().backward(), "x.1.weight.grad"),
        (lambda: torch.tensor([float("nan")]), lambda x: x.add(1), ""),
        (a_module, lambda x: x.state_dict(), ""),
    ],
)
def test_what_a_call_has_changed_is_named(make, act, words):
    value = make()
    before = snapshot(value)
    act(value)
    assert change("x", before, snapshot(value)) == words


@pytest.mark.parametrize(
    ("actual", "right", "difference"),
    [
        (torch.zeros(2, 2), torch.tensor([[0, 0], [3.5, 0]]), ("element [1, 0]", 0.0, 3.5)),
        (
            torch.tensor([0.1 + 1e-12, torch.inf, torch.nan, 1.0]),
            torch.tensor([0.1, torch.inf, torch.nan, 1.5]),
            ("element [3]", 1.0, 1.5),
        ),
        (torch.zeros(0), torch.zeros(0), ("", torch.zeros(0), torch.zeros(0))),
        ([1, [2, 3]], [1, [2, 4]], ("element 1 1", 3, 4)),
        ({"a": [1]}, {"a": [2]}, ("element 'a' 0", 1, 2)),
        ([1, 2], [1], ("", [1, 2], [1])),
        (1.0000001, 2.0, ("", 1.0000001, 2.0)),
    ],
)
def test_the_first_difference_of_two_values(actual, right, difference):
    place, *values = first_difference(actual, right, values_equal)
    assert (place, *map(str, values)) == (difference[0], *map(str, difference[1:]))


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        (2, 2.0),
        (1.5, 1.5),
        (torch.tensor(3), 3.0),
        (torch.tensor([[4.0]]), 4.0),
        (torch.tensor([1.0, 2.0]), None),
        (True, None),
        ("5", None),
        (None, None),
    ],
    ids=str,
)
def test_a_number_may_come_in_a_tensor(answer, number):
    assert number_in(answer) == number
