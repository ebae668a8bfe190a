"""The loaders of a rank, numbered as they are made: their batches are recorded, or replayed."""

import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from manyranks.script_doctor.batch_log import BatchLog
from manyranks.script_doctor.patches import Patches
from manyranks.script_doctor.replay import Replay

BatchKey = tuple[int, int, int]  # number of the loader, of the pass over it, and of the batch


class WithLoaders:
    """Runs `worker` in a rank while its loaders are recorded below `folder`, or replayed."""

    def __init__(self, worker: Callable, folder: Path, replay: Replay | None = None):
        self.__wrapped__, self.folder, self.replay = worker, folder, replay
        self.__module__ = getattr(worker, "__module__", "")  # the rank names its program by it

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the worker; what it returns."""
        with Patches() as patches:
            log = BatchLog(rank_folder(self.folder, os.environ["RANK"]))
            Loaders(log, self.replay).install(patches)
            return self.__wrapped__(*args, **kwargs)


class Loaders:
    """Keeps in `log` what the loaders of this rank yield; with `replay` they yield what it holds.

    A subclass may see more of a pass, and end it after `most` batches.
    """

    def __init__(self, log: BatchLog, replay: Replay | None, most: int | None = None):
        self.log, self.replay, self.most = log, replay, most
        self.numbers: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self.pass_counts: dict[int, int] = {}  # passes over each loader

    def install(self, patches: Patches) -> None:
        """Put the recorder, or the replay, in place."""
        patches.replace(DataLoader, "__init__", self.make)
        patches.replace(DataLoader, "__iter__", self._iterate)
        patches.replace(DataLoader, "__len__", self._length)

    def make(self, init: Callable, loader: DataLoader, *args: Any, **kwargs: Any) -> None:
        """Make a loader."""
        init(loader, *args, **kwargs)
        self.numbers.setdefault(loader, len(self.numbers))

    def begin(self, loader: DataLoader, number: int, pass_number: int) -> None:
        """A pass over a loader begins."""

    def keep(self, key: BatchKey, batch: Any) -> None:
        """A batch was yielded."""
        self.log.keep(key, batch)

    def end(self, number: int, pass_number: int, *, cut: bool) -> None:
        """A pass has ended; `cut` if the loader has more."""

    def replayed(self, replay: Replay, number: int, pass_number: int, samples: int | None) -> Any:
        """The batches of all ranks, joined."""
        return replay.batches(number, pass_number, samples)

    def _iterate(self, iterate: Callable, loader: DataLoader) -> "LoaderIterator":
        number = self.numbers.setdefault(loader, len(self.numbers))
        pass_number = self.pass_counts[number] = self.pass_counts.get(number, 0) + 1
        self.begin(loader, number, pass_number)
        if self.replay and self.replay.has(number, pass_number):
            batches = self.replayed(self.replay, number, pass_number, loader.batch_size)
        else:
            batches = iterate(loader)
        return LoaderIterator(batches, self, number, pass_number)

    def _length(self, count: Callable, loader: DataLoader) -> int:
        number = self.numbers.setdefault(loader, len(self.numbers))
        length = self.replay.length(number) if self.replay else None
        if length is None:
            length = at_most(count(loader), self.most)
            self.log.note(f"length-{number}", length)
        return length


class LoaderIterator:
    """The iterator of a loader, which may end before the loader does."""

    def __init__(self, iterator: Iterator[Any], loaders: Loaders, number: int, pass_number: int):
        self.iterator: Any = iterator
        self.loaders, self.number, self.pass_number = loaders, number, pass_number
        self.count = 0

    def __iter__(self) -> "LoaderIterator":
        return self

    def __next__(self) -> Any:
        if self.count == self.loaders.most:
            if self.iterator is not None:
                self.loaders.end(self.number, self.pass_number, cut=self._has_more())
            self.iterator = None  # ends its workers
            raise StopIteration
        try:
            batch = next(self.iterator)
        except StopIteration:
            self.loaders.end(self.number, self.pass_number, cut=False)
            raise
        self.loaders.keep((self.number, self.pass_number, self.count), batch)
        self.count += 1
        return batch

    def _has_more(self) -> bool:
        """Whether the loader holds more batches; True if it cannot tell."""
        count = batch_count(self.iterator)
        return count is None or count > self.count

    def __len__(self) -> int:
        return at_most(len(self.iterator), self.loaders.most)

    def __getattr__(self, name: str) -> Any:
        if name == "iterator":
            raise AttributeError(name)
        return getattr(self.iterator, name)


def at_most(number: int, most: int | None) -> int:
    """The number, or the most there may be."""
    return number if most is None else min(number, most)


def batch_count(loader: Any) -> int | None:
    """How many batches a loader over a map holds; also asked of its iterator."""
    try:
        return len(loader._index_sampler)
    except (AttributeError, TypeError):
        return None


def rank_folder(folder: Path, rank: int | str) -> Path:
    """Where the batches of a rank are kept."""
    return folder / str(rank)
