"""Puts a wrong value into words: which part of it is wrong, what came back, what is required.

No value may keep a verdict from being said: where an exercise's own words cannot be made of it,
those that are made here are said instead.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ddp_workbook.judging.check import CheckFailed, DistributedCheck
from ddp_workbook.judging.comparison import Comparison, Observation, fields_of
from ddp_workbook.judging.diagnosis import UNUSABLE, equal
from ddp_workbook.judging.values import first_difference, in_words

LARGE = 10_000  # numbers of the check's own from here on have commas


def failure_report(
    check: DistributedCheck,
    comparison: Comparison,
    obs: Observation,
    where_to_look: str,
    later: bool,
) -> CheckFailed:
    """The four sentences: called, came back, required, where to look; `later`: other calls came
    before this one, and were right.
    """
    keys, value, expected = wrong_part(comparison, obs)
    called = check.describe_call(obs.case, obs.rank, f"{keys[0]}" if keys else "")
    if later:
        called += f"\n(call {obs.call + 1}; the results before it were right)"
    name = "" if obs.value is obs.actual else comparison.name  # it is all that came back
    label = in_path([name, *keys] if name else keys)
    here, there = places(comparison, obs)
    words = {
        "value": show(value, expected, own=bool(name)),
        "expected": show(expected, value, own=bool(name)),
        "where": here,
        "there": there,
        "rank": obs.rank,
        "size": obs.size,
        "all_values": "\n".join(f"rank {o.rank}: {in_words(o.value)}" for o in obs.all_ranks),
        "all_expected": "\n".join(f"rank {o.rank}: {in_words(o.expected)}" for o in obs.all_ranks),
        "also_wrong": also_wrong(comparison, obs),
        "part": " of ".join(map(str, keys)),
    }
    if obs.value is UNUSABLE:
        words["value"] = in_words(obs.actual)
    actual = fill(comparison.actual, obs, words) or fill(
        f"{label}: {{value}} {{where}}" if label else "{value} {where}", obs, words
    )
    required = fill(comparison.required, obs, words) or fill("{expected} {there}", obs, words)
    if words["value"] == words["expected"] and obs.value is not UNUSABLE:  # as far as it is shown
        place, one, other = first_difference(value, expected, partial(equal, comparison))
        place = place or "exactly"
        actual, required = f"{actual}\n{place}: {one!r}", f"{required}\n{place}: {other!r}"
    return CheckFailed(called, actual, required, where_to_look)


def wrong_part(comparison: Comparison, obs: Observation) -> tuple[list[str | int], Any, Any]:
    """The way to the first wrong part of a value, and what is there and what must be there."""
    keys: list[str | int] = []
    value, expected = obs.value, obs.expected
    while inside := first_wrong_item(comparison, value, expected):
        key, value, expected = inside
        keys.append(key)
    return keys, value, expected


def first_wrong_item(comparison: Comparison, value: Any, expected: Any) -> tuple | None:
    """Key, value and right value of the first wrong item; None if there are no such items."""
    here, there = items_of(value), items_of(expected)
    if list(here) != list(there):
        return None
    pairs = ((key, here[key], there[key]) for key in there)
    return next((pair for pair in pairs if not equal(comparison, *pair[1:])), None)


def items_of(value: Any) -> dict:
    """What a value consists of, by key, field or place; {} if it is shown as a whole.

    So are lists, unless they hold tensors.
    """
    if isinstance(value, dict):
        return value
    if isinstance(value, list | tuple) and any(isinstance(item, torch.Tensor) for item in value):
        return dict(enumerate(value))
    return fields_of(value)


def also_wrong(comparison: Comparison, obs: Observation) -> str:
    """A line with the keys of a dict under which more is wrong than under the first; or ""."""
    here, there = items_of(obs.value), items_of(obs.expected)
    wrong = [
        f"{key}" for key in there if key in here and not equal(comparison, here[key], there[key])
    ]
    return f"\nalso wrong: {', '.join(wrong[1:])}" if wrong[1:] else ""


def in_path(keys: list) -> str:
    """ "gradient of inner.bias" or "item 2"."""
    return " of ".join(f"item {key}" if isinstance(key, int) else f"{key}" for key in keys)


def places(comparison: Comparison, obs: Observation) -> tuple[str, str]:
    """Where the value came back, and where the right one is required: here, or everywhere."""
    everyone = obs.all_ranks
    here = f"on rank {obs.rank}" if len(everyone) > 1 else ""
    alike = len(everyone) > 1 and all(
        equal(comparison, other.expected, obs.expected) for other in everyone
    )
    all_came = alike and all(equal(comparison, other.value, obs.value) for other in everyone)
    return "on every rank" if all_came else here, "on every rank" if alike else here


def show(value: Any, other: Any, own: bool) -> str:
    """A value in words, beside another one; what a check has observed itself needs no quotes."""
    if isinstance(value, torch.Tensor):
        words = in_words(value)
        if other is None:
            return words
        if not isinstance(other, torch.Tensor):
            return f"tensor({words})"
        if value.dtype == other.dtype and value.shape == other.shape:
            return words
        return f"{words} of shape {tuple(value.shape)} in {value.dtype}"
    if not own:
        return in_words(value)
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value) or "none"
    if type(value) is int and abs(value) >= LARGE:
        return f"{value:,}"
    return in_words(value)


def fill(template: str | Callable[[Observation], str], obs: Observation, words: dict) -> str:
    """The words of a template, or of a function; "" if it has none for this value."""
    if isinstance(template, str):
        return template.format(**words).strip()
    with contextlib.suppress(Exception):  # the function expects another kind of value
        return template(obs)
    return ""
