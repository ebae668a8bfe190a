"""A worker whose loaders are recorded, or yield in one process what those of all ranks yielded."""

import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from manyranks.script_doctor.batch_log import BatchLog
from manyranks.script_doctor.patches import Patches
from manyranks.script_doctor.replay import Replay


class WithLoaders:
    """Runs `worker` in a rank while its loaders are recorded below `folder`, or replayed."""

    def __init__(self, worker: Callable, folder: Path, replay: Replay | None = None):
        self.__wrapped__, self.folder, self.replay = worker, folder, replay
        self.__module__ = getattr(worker, "__module__", "")  # the rank names its program by it

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the worker; what it returns."""
        with Patches() as patches:
            Loaders(BatchLog(rank_folder(self.folder, os.environ["RANK"])), self.replay).install(
                patches
            )
            return self.__wrapped__(*args, **kwargs)


class Loaders:
    """The loaders of a rank, numbered as they are made."""

    def __init__(self, log: BatchLog, replay: Replay | None):
        self.log, self.replay = log, replay
        self.numbers: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self.pass_counts: dict[int, int] = {}

    def install(self, patches: Patches) -> None:
        """Put the recorder, or the replay, in place."""
        patches.replace(DataLoader, "__init__", self._make)
        patches.replace(DataLoader, "__iter__", self._iterate)
        patches.replace(DataLoader, "__len__", self._length)

    def _make(self, init: Callable, loader: DataLoader, *args: Any, **kwargs: Any) -> None:
        init(loader, *args, **kwargs)
        self.numbers.setdefault(loader, len(self.numbers))

    def _iterate(self, iterate: Callable, loader: DataLoader) -> Iterator[Any]:
        number = self.numbers[loader]
        count = self.pass_counts[number] = self.pass_counts.get(number, 0) + 1
        if self.replay is None:
            return self._recorded(iterate(loader), number, count)
        if self.replay.has(number, count):
            return self.replay.batches(number, count, loader.batch_size)
        return iterate(loader)

    def _recorded(self, batches: Iterator[Any], number: int, count: int) -> Iterator[Any]:
        for place, batch in enumerate(batches):
            self.log.keep((number, count, place), batch)
            yield batch

    def _length(self, count: Callable, loader: DataLoader) -> int:
        number = self.numbers[loader]
        length = self.replay.length(number) if self.replay else None
        if length is None:
            length = count(loader)
            self.log.note(f"length-{number}", length)
        return length


def rank_folder(folder: Path, rank: int | str) -> Path:
    """Where the batches of a rank are kept."""
    return folder / str(rank)
