"""Compares what was seen with what is right, and with what a mistake would have given."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch

from ddp_workbook.exercises.judging.check import SOLUTION, Look, OnRanks, Seen, ask
from ddp_workbook.exercises.judging.same import is_number, kind, same

NOTHING = "Does the function return its result, on every path?"
FILLS = " A collective fills its tensors and returns None."
ONE_HAS_IT = "After {op}, one rank alone has the result. How do the others get it?"
TO_ONE = ("reduce", "gather")  # operations whose result only one rank receives
ON = ("all_", "broadcast", "scatter", "send", "recv")  # what could bring it to the others
UNDER_WAY = (
    "An asynchronous operation may still write into its tensor until you have waited for it. Which "
    "of your lines, or of the operations that follow, use that tensor before?"
)
ROUNDED = (
    "This is right up to the rounding of float32, but float64 is asked for. Which dtype do these "
    "numbers have on their way?"
)
ANOTHER_KIND = "This is {actual}; {right} is asked for. Which of your lines decides that?"


def looked_at(look: Look, calls: Sequence[Sequence[Seen]]) -> list[list[Seen]]:
    """The calls, each with the value that this look compares and the right one."""
    looked = [
        [replace(seen, value=look.of(seen), right=right_of(look, seen)) for seen in call]
        for call in calls
    ]
    for call in looked:
        for seen in call:
            seen.everyone = call
    return looked


def right_of(look: Look, seen: Seen) -> Any:
    """The right value of a call on a rank."""
    if look.right is SOLUTION and seen.solution:
        return look.of(seen.solution)
    return ask(look.right, seen.case, seen.rank)


def wrong_ones(look: Look, calls: Sequence[Sequence[Seen]]) -> list[Seen]:
    """Every call and rank in which this look finds something wrong, in order."""
    return [seen for call in looked_at(look, calls) for seen in call if wrong(look, seen)]


class Unusable:
    """In the place of a value that a look cannot take from what came back."""


def views(check: OnRanks, calls: Sequence[Sequence[Seen]]) -> list[list[list[Any]]]:
    """By look, call and rank: the value that the look compares."""
    return [[[viewed(look, seen) for seen in call] for call in calls] for look in check.looks]


def viewed(look: Look, seen: Seen) -> Any:
    """The value; Unusable if an earlier look must be right before this one can be made."""
    with contextlib.suppress(Exception):
        return look.of(seen)
    return Unusable


def alike(look: Look, some: Sequence[Sequence[Any]], others: Sequence[Sequence[Any]]) -> bool:
    """Whether all values of a look are equal."""
    pairs = zip(chain(*some), chain(*others), strict=True)
    return all(a is b or equal(look, a, b) for a, b in pairs)


@dataclass
class Explanation:
    """How far a mistake explains what was seen: which looks, and what was sent."""

    looks: list[bool]
    sends: bool  # something was sent in the same calls
    all: bool  # the same operations in the same order, and the same arguments were changed


def compared(
    check: OnRanks, calls: Sequence[Sequence[Seen]], tried: Sequence[Sequence[Seen]]
) -> Explanation:
    """What was seen in these calls, beside what a mistake has given in the same ones."""
    looks = [
        alike(look, *both)
        for look, *both in zip(check.looks, views(check, calls), views(check, tried), strict=True)
    ]
    pairs = [*zip(chain(*calls), chain(*tried), strict=True)]
    return Explanation(
        looks,
        sends=all(bool(a.wire) == bool(b.wire) for a, b in pairs),
        all=all(a.ops == b.ops and a.changed == b.changed for a, b in pairs),
    )


def equal(look: Look, actual: Any, right: Any) -> bool:
    """Whether two values are the same to this look; False if it cannot compare them."""
    with contextlib.suppress(Exception):
        return bool((look.same or same)(actual, right))
    return False


def wrong(look: Look, seen: Seen) -> bool:
    """Whether this value is not the right one."""
    return not equal(look, seen.value, seen.right)


def wrong_parts(look: Look, seen: Seen) -> list[str]:
    """The keys under which a dict differs from the right one; [] if it is not a dict."""
    value, right = seen.value, seen.right
    if not isinstance(value, dict) or not isinstance(right, dict) or list(value) != list(right):
        return []
    return [key for key in right if not equal(look, value[key], right[key])]


def of_its_kind(look: Look, seen: Seen) -> str:
    """Where to look if the value has another type, or less precision; else ""."""
    value, right = seen.value, seen.right
    if value is None and right is not None:
        return NOTHING + FILLS * bool(seen.wire)
    if kind(value) != kind(right) and not (is_number(value) and is_number(right)):
        return ANOTHER_KIND.format(actual=kind(value), right=kind(right))
    rounded = has_float64(right) and same(in_float32(value), in_float32(right))
    return ROUNDED if rounded else ""


def on_one_rank(look: Look, bad: Seen) -> str:
    """Where to look if the rank that others sent to has the right result, and this one has not."""
    places = [n for n, row in enumerate(bad.wire) if row["op"] in TO_ONE and not row["received"]]
    if not places or any(op.startswith(ON) for op in bad.ops[places[-1] :]):
        return ""
    there = any(
        row["op"] in TO_ONE and row["received"] and not wrong(look, one)
        for one in bad.everyone
        for row in one.wire
    )
    return ONE_HAS_IT.format(op=bad.ops[places[-1]]) if there else ""


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
        return {key: in_float32(one) for key, one in value.items()}
    return [*map(in_float32, value)] if isinstance(value, list | tuple) else value


def worded(words: str | Callable[[Seen], str], seen: Seen) -> str:
    """The words, with rank and world size filled in."""
    if callable(words):
        return words(seen)
    return words.format(rank=seen.rank, size=seen.size) if "{" in words else words
