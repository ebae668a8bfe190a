"""The batches that the loaders of a rank have yielded, and the random states behind them."""

import io
import json
import os
import pickle
import random
from pathlib import Path
from typing import Any

import numpy
import torch

from manyranks.script_doctor.batches import as_plain
from manyranks.script_doctor.notes import digest, tensors_in

MAX_BYTES = 1 << 28  # of all batches together
_open, _rename, _save = os.open, os.rename, torch.save  # later all three may be redirected


def random_check_sum() -> int:
    """A check sum of the states from which numbers are drawn."""
    return digest(torch.get_rng_state().numpy().data) ^ digest(
        pickle.dumps((numpy.random.get_state(), random.getstate()))
    )


def seed_all(rank: int) -> None:
    """Seed what draws random numbers, for scripts that do not; rank 0 as the one process."""
    random.seed(rank)
    numpy.random.seed(rank)
    torch.manual_seed(rank)


def random_state() -> dict[str, Any]:
    """The states from which numbers are drawn in this process.

    As tensors: loading 625 numbers one by one with `weights_only` takes longer than a small step.
    """
    name, keys, *others = numpy.random.get_state()
    version, numbers, cached = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "numpy": [name, torch.tensor(keys, dtype=torch.int64), *others],
        "random": [version, torch.tensor(numbers, dtype=torch.int64), cached],
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Go on drawing from these states."""
    torch.set_rng_state(state["torch"])
    name, keys, *others = state["numpy"]
    numpy.random.set_state((name, keys.numpy().astype("uint32"), *others))
    version, numbers, cached = state["random"]
    random.setstate((version, tuple(numbers.tolist()), cached))


class BatchLog:
    """Keeps batches until they are too large together."""

    def __init__(self, folder: Path):
        self.folder, self.bytes = folder, 0
        folder.mkdir(parents=True, exist_ok=True)

    def keep(self, key: tuple[int, int, int], batch: Any) -> None:
        """Keep the batch of (loader, pass, number), and the random state behind it."""
        self.bytes += sum(t.numel() * t.element_size() for t in tensors_in(batch))
        if self.bytes <= MAX_BYTES:
            plain = {"batch": as_plain(batch), "random": random_state()}
            self.write("batch-{}-{}-{}".format(*key), plain)
        else:
            self.note("too_large", self.bytes)

    def note(self, name: str, value: Any) -> None:
        """Note a number or a sentence; the first of its name stays."""
        path = self.folder / f"{name}.json"
        if not path.exists():
            self._write_bytes(path, json.dumps(value).encode())

    def write(self, name: str, value: Any) -> None:
        """Write tensors, numbers and words, as a file that appears when it is complete."""
        buffer = io.BytesIO()
        _save(value, buffer)
        self._write_bytes(self.folder / f"{name}.pt", buffer.getvalue())

    def _write_bytes(self, path: Path, data: bytes) -> None:
        file = _open(path.with_suffix(".part"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(file, "wb") as whole:
            whole.write(data)
        _rename(path.with_suffix(".part"), path)
