"""What a call has done to its arguments: numbers, shape, memory, gradients, a module's state."""

from typing import Any, NamedTuple

import numpy
import torch
from torch import nn

HOOKS = [name for name in vars(nn.Module()) if name.endswith("_hooks")]


class TensorState(NamedTuple):
    """A tensor as it was; the fields are in the order in which a change is told."""

    numbers: torch.Tensor
    shape: torch.Size
    dtype: torch.dtype
    stride: tuple[int, ...]
    memory: int
    requires_grad: bool
    grad: "TensorState | None"


WORDS = {  # what has changed -> how the argument `{}` is named then
    "numbers": "{}",
    "shape": "the shape of {}",
    "dtype": "the dtype of {}",
    "stride": "the strides of {}",
    "memory": "which memory {} uses",
    "requires_grad": "{}.requires_grad",
    "grad": "{}.grad",
}


def copied(value: Any) -> Any:
    """The value with memory of its own, so that it does not change later."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, numpy.ndarray):
        return value.copy()
    if isinstance(value, nn.Module):
        return {name: copied(tensor) for name, tensor in value.state_dict().items()}
    if type(value) in (list, tuple):
        return type(value)(map(copied, value))
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    return value


def snapshot(value: Any) -> Any:
    """All that a call must leave as it is, to compare with another snapshot."""
    if isinstance(value, torch.Tensor):
        strided = value.layout == torch.strided
        return TensorState(
            value.detach().clone(),
            value.shape,
            value.dtype,
            value.stride() if strided else (),
            value.data_ptr() if strided else 0,
            value.requires_grad,
            snapshot(value.grad) if value.is_leaf and value.grad is not None else None,
        )
    if isinstance(value, numpy.ndarray):
        return [value.copy(), value.shape, value.strides, str(value.dtype)]
    if isinstance(value, nn.Module):
        tensors = dict(value.named_parameters(remove_duplicate=False))
        tensors |= dict(value.named_buffers(remove_duplicate=False))
        state = {name: snapshot(tensor) for name, tensor in tensors.items()}
        for name, submodule in value.named_modules():
            start = f"{name}." if name else ""
            state[f"{start}training"] = submodule.training
            state[f"{start}hooks"] = [list(vars(submodule)[kind]) for kind in HOOKS]
        return state
    if type(value) in (list, tuple):
        return type(value)(map(snapshot, value))
    if type(value) is dict:
        return {key: snapshot(item) for key, item in value.items()}
    return value


def change(name: str, before: Any, now: Any) -> str:
    """What differs between two snapshots of the argument `name`, in words; "" if nothing does."""
    if isinstance(before, TensorState):
        if not isinstance(now, TensorState):
            return name
        for aspect in ("shape", "dtype", "numbers", "stride", "memory", "requires_grad", "grad"):
            if not _same_state(getattr(before, aspect), getattr(now, aspect)):
                return WORDS[aspect].format(name)
        return ""
    if type(before) is dict and type(now) is dict and list(before) == list(now):
        inside = (change(f"{name}.{key}", item, now[key]) for key, item in before.items())
        return next(filter(None, inside), "")
    return "" if unchanged(now, before) else name


def _same_state(before: Any, now: Any) -> bool:
    if isinstance(before, TensorState) and isinstance(now, TensorState):
        return all(map(_same_state, before, now))
    return unchanged(before, now)


def unchanged(now: Any, before: Any) -> bool:
    """Whether a value is unchanged, bit for bit."""
    if now is before:
        return True
    if isinstance(now, TensorState) and isinstance(before, TensorState):
        return _same_state(now, before)
    if isinstance(now, nn.Module):
        now = copied(now)
    if isinstance(now, torch.Tensor) != isinstance(before, torch.Tensor):
        return False
    if isinstance(now, torch.Tensor):
        both_nan = (now != now) & (before != before) if now.shape == before.shape else None
        return both_nan is not None and (now.is_meta or bool(((now == before) | both_nan).all()))
    if isinstance(now, numpy.ndarray):
        return bool(numpy.array_equal(now, before))
    if type(now) in (list, tuple):
        alike = type(now) is type(before) and len(now) == len(before)
        return alike and all(map(unchanged, now, before))
    if type(now) is dict:
        return list(now) == list(before) and all(unchanged(now[k], before[k]) for k in now)
    return bool(now == before)
