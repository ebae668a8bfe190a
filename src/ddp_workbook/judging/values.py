"""Values in a verdict: short, exact enough, and readable without knowing a tensor's repr."""

import math
import reprlib
from collections.abc import Callable
from typing import Any

import torch

MAX_ITEMS = 12  # elements of a tensor, and items of a list, that are shown
MAX_DEPTH = 4  # lists in lists
SHORT = reprlib.Repr()
SHORT.maxother = SHORT.maxstring = 120


def in_words(value: Any) -> str:
    """A tensor as `[[1, 2.5], [3, 4]]`; a large one as its first numbers and its shape.

    Items of lists, tuples and dicts are shown the same way, anything else as its shortened repr.
    """
    return _in_words(value, MAX_DEPTH)


def is_plain(value: Any) -> bool:
    """Whether a value is a number, a text, a dtype, or made of such."""
    if isinstance(value, dict):
        return is_plain([*value, *value.values()])
    if isinstance(value, list | tuple | set):
        return all(map(is_plain, value))
    return value is None or isinstance(value, int | float | str | torch.dtype)


def _in_words(value: Any, depth: int) -> str:
    if isinstance(value, torch.Tensor):
        inside_alone = depth < MAX_DEPTH and value.dim() == 0  # else it looks like a number
        return f"tensor({_tensor(value)})" if inside_alone else _tensor(value)
    if type(value) in (list, tuple, dict) and depth == 0:
        return "…"
    if type(value) is dict:
        items = [f"{SHORT.repr(k)}: {_in_words(v, depth - 1)}" for k, v in _first(value.items())]
        return "{" + _joined(items, len(value)) + "}"
    if type(value) in (list, tuple):
        inner = _joined([_in_words(item, depth - 1) for item in _first(value)], len(value))
        if type(value) is list:
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(SHORT.repr(value).split())


def _first(items: Any) -> list:
    return [item for item, _ in zip(items, range(MAX_ITEMS), strict=False)]


def _joined(items: list[str], length: int) -> str:
    return ", ".join(items) + (f", … ({length:,} in all)" if length > len(items) else "")


def _tensor(tensor: torch.Tensor) -> str:
    shape = " x ".join(map(str, tensor.shape))
    try:
        plain = tensor.detach().cpu().to_dense() if tensor.is_sparse else tensor.detach().cpu()
        if tensor.numel() == 0:
            return f"[] (shape {shape})"
        if plain.numel() <= MAX_ITEMS:
            return str(_rounded(plain.tolist()))
        first = [_rounded(number) for number in plain.flatten()[:4].tolist()]
    except (RuntimeError, NotImplementedError):  # without values, on the device "meta"
        return f"a tensor of shape ({shape}) on {tensor.device}, without numbers to show"
    return f"[{', '.join(map(str, first))}, … ({shape} numbers)]"


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, float) and math.isfinite(value):
        number = float(f"{value:.5g}")
        whole = number == int(number) and abs(number) < 1e9 and f"{number}" != "-0.0"
        return int(number) if whole else number
    return value


def first_difference(
    actual: Any, expected: Any, same: Callable[[Any, Any], bool]
) -> tuple[str, Any, Any]:
    """Where two values differ, such as "element [2, 0]", and what stands there in each.

    Lists, tuples and dicts are entered at the first difference, tensors where it is large.
    """
    where: list[Any] = []
    while inside := _difference_inside(actual, expected, same):
        key, actual, expected = inside
        where.append(key)
    keys = [repr(key) if isinstance(key, str) else f"{key}" for key in where]
    return f"element {' '.join(keys)}" if keys else "", actual, expected


def _difference_inside(
    actual: Any, expected: Any, same: Callable[[Any, Any], bool]
) -> tuple | None:
    """Key and both elements of the first difference inside; None if there are no such elements."""
    pairs: Any = ()
    if isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor):
        if actual.shape == expected.shape and actual.dim() and actual.numel():
            here, there = actual.detach().cpu().double(), expected.detach().cpu().double()
            alike = (here == there) | (here.isnan() & there.isnan())
            apart = (here - there).abs().nan_to_num(torch.inf).masked_fill(alike, 0)
            if apart.max() > 0:  # rounding may differ in others, which come before
                place = (apart >= apart.max() / 2).nonzero()[0].tolist()
                return place, actual[tuple(place)].item(), expected[tuple(place)].item()
    elif isinstance(actual, list | tuple) and isinstance(expected, list | tuple):
        if len(actual) == len(expected):
            pairs = ((n, *values) for n, values in enumerate(zip(actual, expected, strict=True)))
    elif type(actual) is dict and type(expected) is dict and list(actual) == list(expected):
        pairs = ((key, actual[key], expected[key]) for key in expected)
    return next((pair for pair in pairs if not same(*pair[1:])), None)
