"""What a verdict says of a wrong part, whatever the value is: its path, its words, its form."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from ddp_workbook.judging import Comparison, Observation, Pattern, SingleProcessCheck, at_most
from ddp_workbook.judging.diagnosis import mismatches
from ddp_workbook.judging.engine import hint, pattern_hint
from ddp_workbook.judging.forms import in_words_of_type, misfit
from ddp_workbook.judging.wording import failure_report


class Step(NamedTuple):
    """A result with fields."""

    loss: float
    rows: int


class Case(NamedTuple):
    """A call of `train`; one of its fields is what is right of a part."""

    lr: float
    steps: int


def train(model: object, lr: float) -> dict[str, float]:
    """In the place of a solution."""


def report(actual, expected=None, **parts) -> dict[str, str]:
    """The rows of the verdict on a value, of which these parts are compared."""
    check = SingleProcessCheck(cases=[Case(0.5, 4)], compare=parts or "?", on_pass="yes")
    check.function = train
    check.caller = train  # its arguments are not made here
    calls = [[Observation(0, 0, Case(0.5, 4), actual)]]
    calls[0][0].solution = Observation(0, 0, Case(0.5, 4), expected)
    for comparison in check.comparisons:
        if bad := mismatches(comparison, calls):
            where = pattern_hint(comparison, bad[0]) or hint(comparison, bad[0])
            return dict(failure_report(check, comparison, bad[0], where, False).rows)
    return {}


FLOAT64 = torch.ones(1, dtype=torch.float64)


@pytest.mark.parametrize(
    ("actual", "expected", "came_back", "required"),
    [
        (1.5, 2.5, "1.5", "2.5"),
        ({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}}, "b of c: 2", "3"),
        (Step(0.5, 3), Step(0.5, 4), "rows: 3", "4"),
        ([torch.ones(2), torch.zeros(2)], [torch.ones(2)] * 2, "item 1: [0, 0]", "[1, 1]"),
        (torch.ones(1), 1.0, "tensor([1])", "1"),
        (None, torch.ones(1), "None", "[1]"),
        ([torch.tensor(1)], [1], "[tensor(1)]", "[1]"),
        (
            torch.ones(1),
            FLOAT64,
            "[1] of shape (1,) in torch.float32",
            "[1] of shape (1,) in torch.float64",
        ),
        (1.0000123, 1.0000987, "1.00001", "1.0001"),
        (torch.tensor([0.0]), torch.tensor([-1e-4]), "[0]", "[-0.0001]"),
    ],
)
def test_the_first_wrong_part_is_named_by_its_path(actual, expected, came_back, required):
    rows = report(actual, expected)
    assert (rows["came back"], rows["required"]) == (came_back, required)
    assert rows["called"] == "train(model, lr=0.5)"


def fails(*_: object) -> str:
    raise ValueError("a value that nobody foresaw")


@pytest.mark.parametrize(
    ("part", "came_back", "look"),
    [
        (Comparison("Why?", 3, actual=fails, required=fails), "steps: 2", "Why?"),
        (Comparison(fails, 3), "steps: 2", "Does every path"),
        (Comparison({"x": "Why x?"}, {"x": 3}, lambda obs: {"x": 2}), "steps of x: 2", "Why x?"),
        (Comparison("Why?", 3, fails), "steps: {'steps': 2}", "Why?"),
        (at_most("Why?", 1), "steps: 2", "Why?"),
        ("Why?", "steps: 2", "Why?"),  # the case says what is right
    ],
)
def test_no_value_keeps_a_verdict_from_being_said(part, came_back, look):
    rows = report({"steps": 2}, {"steps": 7}, steps=part)
    assert rows["came back"] == came_back
    assert rows["look at"].startswith(look)


def test_a_pattern_that_is_about_other_values_does_not_match():
    comparison = Comparison(patterns={"One?": Pattern(fails), "Two?": Pattern(lambda obs: True)})
    assert pattern_hint(comparison, Observation(0, 0, None, 1)) == "Two?"


@pytest.mark.parametrize("words", ["{value:g}", "{value!r}", "{values}", "{obs.value}"])
def test_words_with_a_format_of_their_own_are_refused(words):
    """They are filled with words, of which a format for numbers makes an error."""
    with pytest.raises(ValueError, match="values are put into words before"):
        Comparison(actual=words)


@pytest.mark.parametrize(
    ("annotation", "words", "fits", "misfits"),
    [
        (
            list[int],
            "a list of int",
            (1, 2),
            {1.5: "a float", (1, 0.5): "a tuple with a float in it"},
        ),
        (
            list[list[int]],
            "a list of lists of int",
            [[1], (2,)],
            {
                (1,): "a tuple with an int in it",
                ((1, None),): "a tuple with a tuple with None in it",
            },
        ),
        (
            tuple[int, str] | None,
            "a tuple (int, str), or None",
            None,
            {(1,): "a tuple of 1", (1, 2): "a tuple with an int in it", "x": "a str"},
        ),
        (dict[str, float], "a dict of plain numbers", {"a": torch.tensor(1.0)}, {0.5: "a float"}),
        (list[Tensor], "a list of Tensors", [torch.ones(1)], {None: "None"}),
        (float, "a float", torch.ones(1), {"x": "a str", True: "a bool"}),
    ],
)
def test_a_form_is_that_of_the_annotation(annotation, words, fits, misfits):
    assert in_words_of_type(annotation) == words
    assert misfit(fits, annotation) == ""
    assert {value: misfit(value, annotation) for value in misfits} == misfits


def test_a_dict_of_numbers_has_the_parts_as_its_keys():
    rows = report({"loss": 1.0, "rows": 2}, {"loss": 1.0}, form="", loss="Which loss?")
    assert rows["required"] == 'a dict with the keys "loss"'
    assert rows["look at"] == "Which keys does the task name?"
    rows = report({"loss": torch.tensor(2.0)}, {"loss": 1.0}, form="", loss="Which loss?")
    assert (rows["came back"], rows["look at"]) == ("loss: 2", "Which loss?")
