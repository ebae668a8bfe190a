"""How many bytes autograd holds for backward: what activations in flight weigh, measured."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks


class SavedTensors:
    """Counts the tensors that forwards save for their backwards, each once; without parameters."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.uncounted = {parameter.data_ptr() for parameter in parameters}
        self.times: Counter[int] = Counter()  # saved, by address
        self.bytes = 0  # now

    def watch(self) -> saved_tensors_hooks:
        """A context for forwards."""
        return saved_tensors_hooks(self._pack, lambda saved: saved.tensor)

    def _pack(self, tensor: Tensor) -> Saved:
        saved, place = Saved(tensor.detach()), tensor.data_ptr()
        if place not in self.uncounted:
            self._count(place, +1, tensor.nbytes)
            # Autograd drops `saved` as soon as no backward needs it any more.
            weakref.finalize(saved, self._count, place, -1, tensor.nbytes)
        return saved

    def _count(self, place: int, change: int, size: int) -> None:
        before = self.times[place]
        self.times[place] += change
        self.bytes += size * (bool(self.times[place]) - bool(before))


class Saved:
    """What autograd keeps instead of the tensor: an object whose end can be noticed."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
