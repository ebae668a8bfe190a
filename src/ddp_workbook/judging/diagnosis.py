"""Compares what was seen with what is right, and with what a mistake would have given."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch

from ddp_workbook.judging.check import DistributedCheck, RandomCall, resolve
from ddp_workbook.judging.comparison import SOLUTION, Comparison, Observation, fields_of
from ddp_workbook.judging.equality import is_number, kind, values_equal
from ddp_workbook.judging.guard import EVERY_PATH_RETURNS

RETURNS_NONE = "Does the function return its result, on every path?"
FILLS_IN_PLACE = " A collective fills its tensors and returns None."
RESULT_ON_ONE_RANK = "After {op}, one rank alone has the result. How do the others get it?"
ROOTED_OPS = ("reduce", "gather")  # operations whose result only one rank receives
FORWARDING_OPS = (
    "all_",
    "broadcast",
    "scatter",
    "send",
    "recv",
)  # what could bring it to the others
STILL_RUNNING = (
    "An asynchronous operation may still write into its tensor until you have waited for it. Which "
    "of your lines, or of the operations that follow, use that tensor before?"
)
FLOAT32_PRECISION = (
    "This is right up to the rounding of float32, but float64 is asked for. Which dtype do these "
    "numbers have on their way?"
)
WRONG_TYPE = "This is {actual}; {expected} is asked for. Which of your lines decides that?"


def with_values(
    comparison: Comparison, calls: Sequence[Sequence[Observation]]
) -> list[list[Observation]]:
    """The calls, each with the value that is compared and the right one."""
    compared = [
        [
            replace(
                obs,
                value=selected_value(comparison, obs),
                expected=expected_value(comparison, obs),
            )
            for obs in call
        ]
        for call in calls
    ]
    for call in compared:
        for obs in call:
            obs.all_ranks = call
    return compared


def expected_value(comparison: Comparison, obs: Observation) -> Any:
    """The right value of a call on a rank."""
    if isinstance(obs.case, RandomCall) and obs.solution:
        return comparison.value_of(obs.solution)
    if comparison.expected is SOLUTION and comparison.name in fields_of(obs.case):
        return fields_of(obs.case)[comparison.name]
    if comparison.expected is SOLUTION and obs.solution:
        return comparison.value_of(obs.solution)
    return resolve(comparison.expected, obs.case, obs.rank)


def mismatches(comparison: Comparison, calls: Sequence[Sequence[Observation]]) -> list[Observation]:
    """Every call and rank in which this comparison finds something wrong, in order."""
    return [
        obs for call in with_values(comparison, calls) for obs in call if is_wrong(comparison, obs)
    ]


class Unusable:
    """In the place of a value that a comparison cannot take from what came back."""


UNUSABLE = Unusable()


def selected_values(
    check: DistributedCheck, calls: Sequence[Sequence[Observation]]
) -> list[list[list[Any]]]:
    """By comparison, call and rank: the value that is compared."""
    return [
        [[selected_value(comparison, obs) for obs in call] for call in calls]
        for comparison in check.comparisons
    ]


def selected_value(comparison: Comparison, obs: Observation) -> Any:
    """The value; UNUSABLE if an earlier comparison must be right before this one can be made."""
    with contextlib.suppress(Exception):
        return comparison.value_of(obs)
    return UNUSABLE


def all_equal(
    comparison: Comparison, actual: Sequence[Sequence[Any]], expected: Sequence[Sequence[Any]]
) -> bool:
    """Whether all values of a comparison are equal."""
    pairs = zip(chain(*actual), chain(*expected), strict=True)
    return all(a is b or equal(comparison, a, b) for a, b in pairs)


@dataclass
class Explanation:
    """How far a mistake explains what was seen: in which comparisons, and what was sent."""

    same_values: list[bool]
    same_senders: bool  # something was sent in the same calls
    same_effects: bool  # the same operations in the same order, and the same arguments were changed


def explain(
    check: DistributedCheck,
    calls: Sequence[Sequence[Observation]],
    edited_calls: Sequence[Sequence[Observation]],
) -> Explanation:
    """What was seen in these calls, beside what a mistake has given in the same ones."""
    same_values = [
        all_equal(comparison, *values)
        for comparison, *values in zip(
            check.comparisons,
            selected_values(check, calls),
            selected_values(check, edited_calls),
            strict=True,
        )
    ]
    pairs = [*zip(chain(*calls), chain(*edited_calls), strict=True)]
    return Explanation(
        same_values,
        same_senders=all(bool(a.communication) == bool(b.communication) for a, b in pairs),
        same_effects=all(
            a.ops == b.ops and a.changed_arguments == b.changed_arguments for a, b in pairs
        ),
    )


def equal(comparison: Comparison, actual: Any, expected: Any) -> bool:
    """Whether two values are the same to this comparison; False if it cannot compare them."""
    with contextlib.suppress(Exception):
        return bool((comparison.equal or values_equal)(actual, expected))
    return False


def is_wrong(comparison: Comparison, obs: Observation) -> bool:
    """Whether this value is not the right one."""
    return obs.value is UNUSABLE or not equal(comparison, obs.value, obs.expected)


def type_hint(comparison: Comparison, obs: Observation) -> str:
    """Where to look if the value has another type, or less precision; else ""."""
    value, expected = obs.value, obs.expected
    if value is UNUSABLE and obs.actual is not None:
        return ""
    if (value is None or value is UNUSABLE) and expected is not None:
        return RETURNS_NONE + (FILLS_IN_PLACE if obs.communication else "")
    if kind(value) != kind(expected) and not (is_number(value) and is_number(expected)):
        return WRONG_TYPE.format(actual=kind(value), expected=kind(expected))
    rounded = has_float64(expected) and values_equal(in_float32(value), in_float32(expected))
    return FLOAT32_PRECISION if rounded else ""


def one_rank_hint(comparison: Comparison, bad: Observation) -> str:
    """Where to look if the rank that others sent to has the right result, and this one has not."""
    sends = [
        n
        for n, row in enumerate(bad.communication)
        if row["op"] in ROOTED_OPS and not row["received"]
    ]
    if not sends or any(op.startswith(FORWARDING_OPS) for op in bad.ops[sends[-1] :]):
        return ""
    there = any(
        row["op"] in ROOTED_OPS and row["received"] and not is_wrong(comparison, other)
        for other in bad.all_ranks
        for row in other.communication
    )
    return RESULT_ON_ONE_RANK.format(op=bad.ops[sends[-1]]) if there else ""


def has_float64(value: Any) -> bool:
    """Whether a float64 tensor is in it."""
    if isinstance(value, dict | list | tuple):
        return any(map(has_float64, value.values() if isinstance(value, dict) else value))
    return isinstance(value, torch.Tensor) and value.dtype == torch.float64


def in_float32(value: Any) -> Any:
    """The value with its float64 tensors as float32."""
    if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
        return value.float()
    if isinstance(value, dict):
        return {key: in_float32(item) for key, item in value.items()}
    return [*map(in_float32, value)] if isinstance(value, list | tuple) else value


def fill_words(words: str | Callable[[Observation], str], obs: Observation) -> str:
    """The words, with rank and world size filled in."""
    if not callable(words):
        return words.replace("{rank}", f"{obs.rank}").replace("{size}", f"{obs.size}")
    with contextlib.suppress(Exception):  # the function expects another kind of value
        return words(obs)
    return EVERY_PATH_RETURNS
