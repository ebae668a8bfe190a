"""How large the tensors are that a function makes: all at a time, or the largest one."""

import time
from typing import Any

from torch import Tensor, UntypedStorage
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

PAUSE_S = 0.005  # seconds


class PeakMemoryMode(TorchDispatchMode):
    """Record in `peak_bytes` the peak number of bytes in new tensors.

    Above `limit` it waits for memory to be freed by other threads, up to `patience` seconds in all.
    """

    def __init__(self, limit: int, patience: float = 0.0) -> None:
        super().__init__()
        self.storages: dict[int, StorageWeakRef] = {}
        self.peak_bytes, self.limit, self.patience = 0, limit, patience

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run the operator; add its new tensors to those of earlier ones that are still alive."""
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a DTensor: operators on its shards come here as well
        result = func(*args, **(kwargs or {}))
        inputs = storages_of((args, kwargs))
        for key, memory in storages_of(result).items():
            if key not in inputs:
                self.storages.setdefault(key, StorageWeakRef(memory))
        while self.bytes_now() > self.limit and self.patience > 0:
            time.sleep(PAUSE_S)
            self.patience -= PAUSE_S
        self.peak_bytes = max(self.peak_bytes, self.bytes_now())
        return result

    def bytes_now(self) -> int:
        """Bytes of all live storages; FSDP frees one by resizing it to 0 and keeps the object."""
        alive = {
            key: UntypedStorage._new_with_weak_ptr(ref.cdata) for key, ref in self.storages.items()
        }
        self.storages = {key: ref for key, ref in self.storages.items() if alive[key] is not None}
        return sum(storage.nbytes() for storage in alive.values() if storage is not None)


class LargestTensorMode(TorchDispatchMode):
    """Record in `elements` how many numbers the largest tensor has."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run the operator; an expanded tensor counts as what it has in memory."""
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                in_memory = leaf.untyped_storage().nbytes() // leaf.itemsize
                self.elements = max(self.elements, min(leaf.numel(), in_memory))
        return result


def storages_of(values: Any) -> dict[int, UntypedStorage]:
    """The storages of all tensors in lists, tuples and dicts."""
    tensors = [
        leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor) and not leaf.is_meta
    ]
    return {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in tensors}
