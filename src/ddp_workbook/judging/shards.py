"""Tensors cut into one shard for each rank, for exercises that shard and gather them."""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn


class TensorCase(NamedTuple):
    """A call: the number of ranks that share a tensor, and the kind of tensor."""

    ranks: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    kind: str = ""  # its layout in memory, or "a parameter"


CASES = [  # on 4 ranks the first needs two zeros, the second none; rank 3 has none of the third
    TensorCase(0, (2, 5), torch.float32),
    TensorCase(0, (2, 2, 3), torch.float32),
    TensorCase(0, (5,), torch.float64, "a slice of a larger tensor"),
    TensorCase(0, (6, 4), torch.int64, "not contiguous"),
    TensorCase(0, (), torch.bfloat16),
    TensorCase(0, (0, 3), torch.float32),
    TensorCase(0, (13, 1), torch.float32, "a parameter"),
    TensorCase(0, (3, 2), torch.float64, "not contiguous"),
]


def full_tensor(call: TensorCase) -> Tensor:
    """The tensor, the same on every rank: no number occurs twice, and the last of several is 0.

    Integers are too large for a float64; one of the fractions is infinite.
    """
    size = torch.Size(call.shape)
    count = torch.arange(1, size.numel() + 1) * (-1) ** torch.arange(size.numel())
    numbers = count * 1.25 if call.dtype.is_floating_point else count + 2**53
    numbers = numbers.to(call.dtype)
    if len(numbers) > 4:
        numbers[-1] = 0
    if call.dtype.is_floating_point:
        numbers[1:2] = torch.inf
    if call.kind == "a slice of a larger tensor":
        numbers = torch.cat([numbers - 100, numbers, numbers + 100])[len(numbers) : -len(numbers)]
    tensor = numbers.reshape(size)
    if call.kind == "not contiguous":
        tensor = tensor.mT.contiguous().mT
    return nn.Parameter(tensor) if call.kind == "a parameter" else tensor


def shard(call: TensorCase, rank: int) -> Tensor:
    """The shard of a rank."""
    flat = full_tensor(call).detach().flatten()
    row = torch.cat([flat, flat.new_zeros(-len(flat) % call.ranks)])
    return row.reshape(call.ranks, -1)[rank].clone()


@contextlib.contextmanager
def filled_memory() -> Iterator[None]:
    """Inside, `torch.empty` returns nan or the largest integer, not zeros by chance."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
