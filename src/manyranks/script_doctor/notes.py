"""The facts that a rank writes down: one JSON object a line, on the disk before the rank goes on.

A mistake may end in a hang or in a crash of the process, and is to be named all the same.
"""

import json
import os
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from manyranks.diagnostics.user_code import is_own

MAX_WORD = 40  # characters of a string that may name what a call sends
MAX_LINES = 5  # lines of the reader that lead to a call, at most
MAX_HASHED_BYTES = 1 << 22  # bytes of a tensor above which a sample is hashed
MAX_SUMMED = 1 << 16  # numbers of a tensor that are summed, at most about twice as many
MAX_HASHED_ROWS = 64  # rows of a batch that are hashed, at most
_open = os.open  # later it is redirected


class Notes:
    """Writes the facts of one rank, and of the loader's workers that it forks."""

    def __init__(self, folder: Path, rank: int):
        self.folder, self.rank = folder, rank
        self.file, self.pid = -1, -1

    def write(self, kind: str, **fact: Any) -> None:
        """Append one fact."""
        if self.pid != os.getpid():  # the first fact here, or in a forked worker of a DataLoader
            self.pid = os.getpid()
            name = self.folder / f"rank{self.rank}-{self.pid}.jsonl"
            self.file = _open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        os.write(self.file, (json.dumps({"kind": kind} | fact) + "\n").encode())


def read_notes(folder: Path, ranks: int) -> list[list[dict]]:
    """The facts of each rank, in order; those of the workers that it forked come last."""
    facts: list[list[dict]] = [[] for _ in range(ranks)]
    for file in sorted(folder.glob("rank*.jsonl"), key=lambda file: file.stat().st_ctime_ns):
        rank = int(file.name.removeprefix("rank").partition("-")[0])
        for line in file.read_text().splitlines():
            try:
                facts[rank].append(json.loads(line))
            except ValueError:  # the rank was killed while it wrote
                continue
    for of_rank in facts:
        of_rank.sort(key=lambda fact: "worker" in fact)
    return facts


def lines() -> list[str]:
    """`file.py:12` of the reader's lines that led here, innermost first.

    A model's own methods come last: the line that called the model says more.
    """
    frame: FrameType | None = sys._getframe(1)
    own_lines: list[str] = []
    of_models: list[str] = []
    while frame is not None and len(own_lines) < MAX_LINES:
        if is_own(frame.f_code.co_filename):
            line = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
            inside = not own_lines and isinstance(frame.f_locals.get("self"), torch.nn.Module)
            (of_models if inside else own_lines).append(line)
        frame = frame.f_back
    return list(dict.fromkeys(own_lines + of_models))


def words_of_caller() -> dict[str, str]:
    """The short strings in the reader's function that leads here, by the names they have there."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_own(frame.f_code.co_filename):
        frame = frame.f_back
    values = frame.f_locals.items() if frame else ()
    return {name: value for name, value in values if type(value) is str and len(value) <= MAX_WORD}


# Hashes: equal for equal bits


def digest(data: bytes | memoryview, start: int = 0) -> int:
    """A check sum of 32 bits."""
    return zlib.crc32(data, start)


def hash_of(tensor: torch.Tensor) -> int:
    """A check sum of shape, type and values; of a large tensor, of a sample of the values."""
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_meta or not tensor.numel() or is_freed(tensor):
        return digest(str(tensor.shape).encode())
    step = max(1, tensor.numel() * tensor.element_size() // MAX_HASHED_BYTES)
    flat = tensor.reshape(-1)[::step].contiguous().cpu()
    return digest(flat.view(torch.uint8).numpy().data, digest(str(tensor.shape).encode()))


def hashes(tensors: Iterable[torch.Tensor | None]) -> list[int | None]:
    """The check sum of each; None for None, and for a tensor of which a rank holds a shard."""
    return [None if t is None or is_sharded(t) else hash_of(t) for t in tensors]


def sizes(tensors: Iterable[torch.Tensor]) -> list[list[float] | None]:
    """Two sums and the norm of each, by which a difference is told from one of rounding."""
    result: list[list[float] | None] = []
    for tensor in tensors:
        unusual = is_sharded(tensor) or tensor.is_meta or tensor.is_sparse or tensor.is_complex()
        if unusual or is_freed(tensor):
            result.append(None)
            continue
        flat = tensor.detach().reshape(-1).double()
        flat = flat[:: max(1, flat.numel() // MAX_SUMMED)]
        ramp = torch.linspace(0, 1, flat.numel(), dtype=flat.dtype, device=flat.device)
        result.append([float(flat.norm()), float(flat.sum()), float(flat @ ramp)])
    return result


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor; of a DTensor the part that this rank holds."""
    return getattr(tensor, "_local_tensor", tensor).detach()


def has_values(gradient: torch.Tensor) -> bool:
    """True if a gradient, or this rank's shard of it, is not all zeros."""
    own = local(gradient)
    return bool((own.coalesce().values() if own.is_sparse else own).any())


def is_freed(tensor: torch.Tensor) -> bool:
    """True if the memory behind a tensor was given back, as FSDP does with unsharded weights."""
    return tensor.numel() > 0 and not tensor.untyped_storage().size()


def is_sharded(tensor: torch.Tensor) -> bool:
    """True for a DTensor, of which each rank holds its own part."""
    return hasattr(tensor, "_local_tensor")


def row_hashes(batch: Any, most: int = MAX_HASHED_ROWS) -> list[int]:
    """A check sum for each row of the first tensor in a batch."""
    first = next(iter(tensors_in(batch)), None)
    if first is None or not first.dim() or first.is_nested:
        return []
    rows = first.detach() if first.layout is torch.strided else first.detach().to_dense()
    return [hash_of(row) for row in rows[:most]]


def tensors_in(value: Any, depth: int = 3) -> list[torch.Tensor]:
    """The tensors in a batch: a tensor, or lists and dicts of them."""
    if isinstance(value, torch.Tensor):
        return [] if is_sharded(value) else [value]
    if not depth or isinstance(value, str | bytes):
        return []
    if isinstance(value, dict) or hasattr(value, "items"):
        value = value.values()
    if not isinstance(value, list | tuple) and type(value).__name__ != "dict_values":
        return []
    return [tensor for part in value for tensor in tensors_in(part, depth - 1)]
