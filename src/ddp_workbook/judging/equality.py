"""Compares two values up to rounding, and accepts equivalent types."""

import math
import operator
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import torch

RELATIVE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 1e-3}
ABSOLUTE = 1e-6  # for float32; less in proportion for float64


class Anything:
    """Equal to everything, for the part of a value that a mistake leaves to chance."""

    def __repr__(self) -> str:
        return "ANY"


ANY = Anything()


def values_equal(actual: Any, expected: Any) -> bool:
    """Whether `actual` equals `expected`: numbers up to rounding, tensors also in dtype and shape.

    A tuple may replace a list, anything that Python accepts as an index an int, and any real number
    but bool a float; NaN equals NaN.
    """
    if expected is ANY or actual is ANY:
        return True
    if isinstance(expected, torch.Tensor):
        return isinstance(actual, torch.Tensor) and same_tensor(actual, expected)
    if isinstance(expected, bool) or expected is None or isinstance(expected, str):
        return type(actual) is type(expected) and actual == expected
    if isinstance(expected, int):
        return is_index(actual) and operator.index(actual) == expected
    if isinstance(expected, float):
        return is_number(actual) and close(float(actual), expected)
    if isinstance(expected, Mapping):
        same_keys = isinstance(actual, Mapping) and list(actual) == list(expected)
        return same_keys and all(values_equal(actual[key], expected[key]) for key in expected)
    if isinstance(expected, Sequence):
        same_length = isinstance(actual, list | tuple) and len(actual) == len(expected)
        return same_length and all(map(values_equal, actual, expected))
    return bool(actual == expected)


def same_tensor(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """Equal in dtype, shape and numbers."""
    if (
        actual.is_meta
        or actual.layout != expected.layout
        or actual.dtype != expected.dtype
        or actual.shape != expected.shape
    ):
        return False
    if not expected.dtype.is_floating_point:
        return torch.equal(actual.cpu(), expected)
    relative = RELATIVE.get(expected.dtype, 1e-5)
    absolute = ABSOLUTE * relative / RELATIVE[torch.float32]
    return torch.allclose(actual.detach().cpu(), expected, relative, absolute, equal_nan=True)


def is_index(value: Any) -> bool:
    """True for an int of any library, except bool and tensors."""
    return hasattr(value, "__index__") and not isinstance(value, bool | torch.Tensor)


def is_number(value: Any) -> bool:
    """True for a real number of any library, except bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def close(one: float, other: float) -> bool:
    """Equal up to the rounding of a few float32 operations, or both NaN."""
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-7)


def number_in(answer: Any) -> float | None:
    """The returned number, or the one in a tensor; None for anything else."""
    if isinstance(answer, torch.Tensor) and answer.numel() == 1:
        answer = answer.item()
    return float(answer) if is_number(answer) else None


def kind(value: Any) -> str:
    """The type of a value as a reader would name it: "a tensor", "a list", "None", "an int"."""
    if value is None:
        return "None"
    name = "tensor" if isinstance(value, torch.Tensor) else type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
