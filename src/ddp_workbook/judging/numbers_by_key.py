"""For exercises that return a dict of numbers: its form is looked at first, then each number."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ddp_workbook.judging.check import Comparison, Pattern
from ddp_workbook.judging.equality import is_number, kind
from ddp_workbook.judging.values import in_words

RIGHT, OTHER_KEYS = "a dict of numbers", "a dict with other keys"


def form_comparison(keys: Sequence[str]) -> Comparison:
    """Whether it is a dict with these keys and a number under each; later ones rely on it."""
    return Comparison(
        select=lambda obs: form(obs.actual, keys),
        expected=RIGHT,
        mistakes={
            "Which keys does the task name?": Pattern(lambda obs: obs.value == OTHER_KEYS),
        },
        hint="Which of your lines makes a dict of plain numbers?",
        actual=lambda obs: ", ".join(filter(None, [in_words(obs.actual), obs.value])),
        required="a dict with the keys " + ", ".join(f'"{key}"' for key in keys),
    )


def form(actual: Any, keys: Sequence[str]) -> str | None:
    """In words, what this is; None if it is None."""
    if not isinstance(actual, Mapping):
        return None if actual is None else kind(actual)
    if set(actual) != set(keys):
        return OTHER_KEYS
    others = [kind(value) for value in actual.values() if number(value) is None]
    return f"a dict with {others[0]} in it" if others else RIGHT


def number(value: Any) -> float | int | None:
    """A number of any library, or the only element of a tensor or array; else None."""
    if hasattr(value, "item") and math.prod(getattr(value, "shape", (0,))) == 1:
        value = value.item()
    return value if is_number(value) else None
