"""Answers that are one number: what came back, and whether it is the right one."""

import math
from numbers import Real
from typing import Any

from torch import Tensor


def number_in(answer: Any) -> float | None:
    """The returned number, or that in a tensor; None for all else."""
    if isinstance(answer, Tensor) and answer.numel() == 1:
        answer = answer.item()
    return float(answer) if isinstance(answer, Real) and not isinstance(answer, bool) else None


def near(value: float | str | None, right: float) -> bool:
    """Equal up to rounding, or both nan."""
    if not isinstance(value, float) or math.isnan(right):
        return isinstance(value, float) and math.isnan(value)
    return math.isclose(value, right, rel_tol=1e-5)
