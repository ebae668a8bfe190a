"""Compares what was seen with what is right, and with what a mistake would have given."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch

from ddp_workbook.exercises.judging.check import SOLUTION, Look, OnRanks, Seen, ask
from ddp_workbook.exercises.judging.same import is_number, kind, same

NOTHING = "Does the function return its result, on every path?"
FILLS = " A collective fills its tensors and returns None."
A_WORK = (
    "A collective with async_op=True returns this at once, before there is a result. Which line "
    "waits for it, and which tensor then holds the result?"
)
EARLIER = (
    "This is what an earlier call returned. What does your function keep from one call to the next?"
)
ONE_HAS_IT = "After {op}, one rank alone has the result. How do the others get it?"
TO_ONE = ("reduce", "gather")  # operations whose result only one rank receives
ON = ("all_", "broadcast", "scatter", "send", "recv")  # what could bring it to the others
ROUNDED = (
    "This is right up to the rounding of float32, but float64 is asked for. Which dtype do these "
    "numbers have on their way?"
)
ANOTHER_KIND = "This is {actual}; {right} is asked for. Which of your lines decides that?"


def looked_at(look: Look, calls: Sequence[Sequence[Seen]]) -> list[list[Seen]]:
    """The calls, each with the value that this look compares and the right one."""
    looked = [
        [replace(one, value=look.of(one), right=right_of(look, one)) for one in call]
        for call in calls
    ]
    for number, call in enumerate(looked):
        for one in call:
            one.everyone = call
            one.others = [row[one.rank] for row in looked[:number] if one.rank < len(row)]
    return looked


def right_of(look: Look, one: Seen) -> Any:
    """The right value of a call on a rank."""
    if look.right is SOLUTION and one.solution:
        return look.of(one.solution)
    return ask(look.right, one.case, one.rank)


def wrong_ones(look: Look, calls: Sequence[Sequence[Seen]]) -> list[Seen]:
    """Every call and rank in which this look finds something wrong, in order."""
    return [one for call in looked_at(look, calls) for one in call if wrong(look, one)]


class Unusable:
    """In the place of a value that a look cannot take from what came back."""


def views(check: OnRanks, calls: Sequence[Sequence[Seen]]) -> list[list[list[Any]]]:
    """By look, call and rank: the value that the look compares."""
    return [[[viewed(look, one) for one in call] for call in calls] for look in check.looks]


def viewed(look: Look, one: Seen) -> Any:
    """The value; Unusable if an earlier look must be right before this one can be made."""
    with contextlib.suppress(Exception):
        return look.of(one)
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


def equal(look: Look, one: Any, other: Any) -> bool:
    """Whether two values are the same to this look; False if it cannot compare them."""
    with contextlib.suppress(Exception):
        return bool((look.same or same)(one, other))
    return False


def wrong(look: Look, one: Seen) -> bool:
    """Whether this value is not the right one."""
    return not equal(look, one.value, one.right)


def wrong_parts(look: Look, one: Seen) -> list[str]:
    """The keys under which a dict differs from the right one; [] if it is not a dict."""
    value, right = one.value, one.right
    if not isinstance(value, dict) or not isinstance(right, dict) or list(value) != list(right):
        return []
    return [key for key in right if not equal(look, value[key], right[key])]


def of_its_kind(look: Look, seen: Seen) -> str:
    """Where to look if the value has another type or belongs to another call; else ""."""
    value, right = seen.value, seen.right
    if value is None and right is not None:
        return NOTHING + FILLS * bool(seen.wire)
    if isinstance(value, torch.distributed.Work):
        return A_WORK
    if kind(value) != kind(right) and not (is_number(value) and is_number(right)):
        return ANOTHER_KIND.format(actual=kind(value), right=kind(right))
    by_chance = isinstance(value, bool | int | str)
    if not by_chance and any(equal(look, value, one.value) for one in seen.others):
        return EARLIER
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


def worded(words: str, seen: Seen) -> str:
    """The words, with rank and values filled in."""
    return words.format(rank=seen.rank, size=seen.size) if "{" in words else words
