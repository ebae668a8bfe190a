"""Values in a verdict: short, exact enough, and readable for who has never seen a tensor's repr."""

import reprlib
from typing import Any

import torch

MOST = 12  # elements of a tensor that are shown
SHORT = reprlib.Repr()
SHORT.maxother = SHORT.maxstring = 120


def in_words(value: Any) -> str:
    """A tensor as `[[1, 2.5], [3, 4]]`, a large one as its first numbers and its shape.

    Of lists, tuples and dicts each item so; everything else as its repr, cut.
    """
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, list | tuple) and any(isinstance(one, torch.Tensor) for one in value):
        inner = ", ".join(map(in_words, value[:MOST])) + (", …" if len(value) > MOST else "")
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if isinstance(value, float):
        return f"{value:.6g}"
    return SHORT.repr(value)


def _tensor(tensor: torch.Tensor) -> str:
    if tensor.numel() <= MOST:
        return str(_rounded(tensor.detach().cpu().tolist()))
    first = [_rounded(one) for one in tensor.detach().flatten()[:4].cpu().tolist()]
    shape = " x ".join(map(str, tensor.shape))
    return f"[{', '.join(map(str, first))}, … ({shape} numbers)]"


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    if isinstance(value, float):
        number = float(f"{value:.5g}")
        return int(number) if number == int(number) and abs(number) < 1e9 else number
    return value
