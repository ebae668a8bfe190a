"""Observes loaders: which rows a rank reads, in which order, and which random numbers it draws."""

import inspect
import os
import pickle
import random
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    Subset,
    get_worker_info,
)
from torch.utils.data._utils import fetch

from manyranks.script_doctor.batches import CannotJoin
from manyranks.script_doctor.loaders import BatchKey, Loaders, batch_count
from manyranks.script_doctor.notes import Notes, digest, hash_of, lines, row_hashes, tensors_in
from manyranks.script_doctor.patches import Patches, hide_from_observers
from manyranks.script_doctor.replay import Replay
from manyranks.script_doctor.training import TrainingObserver, torch_state

MAX_FETCHES = 6  # that are looked at in each process
GENERATORS = (numpy.random.Generator, numpy.random.RandomState, random.Random, torch.Generator)


class LoaderObserver(Loaders):
    """Notes the passes over loaders of one rank, and ends each after `batches`."""

    def __init__(
        self,
        notes: Notes,
        training: TrainingObserver,
        batches: int,
        passes: int,
        replay: Replay | None = None,
    ):
        super().__init__(training.recorder.log, replay, batches)
        self.notes, self.training, self.passes = notes, training, passes
        self.creation_lines: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self.full_passes: dict[int, int] = {}  # those that gave more than the first batch
        self.fetch_counts: dict[int, int] = {}  # fetches of each process

    def install(self, patches: Patches) -> None:
        """Put the observers in place."""
        super().install(patches)
        patches.replace(fetch._MapDatasetFetcher, "fetch", self._fetch)

    def make(self, init: Callable, loader: DataLoader, *args: Any, **kwargs: Any) -> None:
        """Make a loader, and remember from where."""
        super().make(init, loader, *args, **kwargs)
        self.creation_lines.setdefault(loader, lines())

    def begin(self, loader: DataLoader, number: int, pass_number: int) -> None:
        """Note a pass, or end the script if there were enough."""
        if self.full_passes.get(number, 0) >= self.passes and self.training.step_count:
            self.training.leave()
        self._note_pass(loader, number, pass_number)

    @hide_from_observers
    def keep(self, key: BatchKey, batch: Any) -> None:
        """Note a batch, and keep it while steps are recorded; both are there if it is replayed."""
        if self.replay:
            return
        number, pass_number, count = key
        if count == 1:
            self.full_passes[number] = self.full_passes.get(number, 0) + 1
        self.training.recorder.keep_batch(key, batch)
        first = next(iter(tensors_in(batch)), None)
        size = first.shape[0] if first is not None and first.dim() else None
        about = {"loader": number, "pass": pass_number}
        self.notes.write("batch", **about, size=size, rows=row_hashes(batch))

    def end(self, number: int, pass_number: int, *, cut: bool) -> None:
        """Note the end of a pass."""
        self.notes.write("ended", loader=number, **{"pass": pass_number}, cut=cut)

    def replayed(
        self, replay: Replay, number: int, pass_number: int, samples: int | None
    ) -> Iterator[Any]:
        """The batches of all ranks; the script ends if they cannot be joined."""
        try:
            yield from replay.batches(number, pass_number, samples)
        except CannotJoin as why:
            self.log.note("cannot_join", str(why))
            self.training.leave()

    @hide_from_observers
    def _note_pass(self, loader: DataLoader, number: int, pass_number: int) -> None:
        sampler, dataset = loader.sampler, loader.dataset
        fact = {
            "loader": number,
            "pass": pass_number,
            "sampler": type(sampler).__name__,
            "workers": loader.num_workers,
            "batch": loader.batch_size,
            "made": self.creation_lines.get(loader, []),
            "batches": batch_count(loader),
            "persistent": loader.persistent_workers and hasattr(dataset, "set_epoch"),
            "own_batches": type(loader.batch_sampler).__name__ not in ("BatchSampler", "NoneType"),
        }
        if isinstance(sampler, DistributedSampler):
            names = ("num_replicas", "rank", "epoch", "shuffle", "seed", "total_size", "drop_last")
            fact["distributed"] = {name: getattr(sampler, name) for name in names}
        if not isinstance(dataset, IterableDataset) and hasattr(dataset, "__len__"):
            fact["length"] = len(dataset)
            if pass_number == 1 and isinstance(dataset, Subset):
                fact["whole"] = some_items(dataset.dataset)
            if pass_number == 1:
                fact["items"] = some_items(dataset)
            fact["repeats"] = bool(getattr(sampler, "replacement", False))
        self.notes.write("pass", **fact, lines=lines())

    # Random numbers

    def _fetch(self, get: Callable, fetcher: Any, indices: Any) -> Any:
        count = self.fetch_counts[os.getpid()] = self.fetch_counts.get(os.getpid(), 0) + 1
        if count > MAX_FETCHES:
            return get(fetcher, indices)
        before = random_states(fetcher.dataset)
        batch = get(fetcher, indices)
        after = random_states(fetcher.dataset)
        changed_states = {name: state for name, state in before.items() if after.get(name) != state}
        if changed_states:
            info = get_worker_info()
            who = {"worker": info.id} if info else {}
            self.notes.write("drawn", states=changed_states, at=line_of(fetcher.dataset), **who)
        return batch


def random_states(dataset: Any) -> dict[str, int]:
    """A check sum of each random state from which a row may be drawn, by its name."""
    states = {
        "torch": torch_state(),
        "numpy": hash_state(numpy.random.get_state()),
        "random": hash_state(random.getstate()),
    }
    attributes = getattr(dataset, "__dict__", {})
    for name, value in attributes.items():
        if isinstance(value, GENERATORS):
            states[f"self.{name}"] = hash_state(value)
    inner = attributes.get("dataset")
    return states | (random_states(inner) if hasattr(inner, "__getitem__") else {})


def hash_state(state: Any) -> int:
    """A check sum of a random state, or of what holds one."""
    if isinstance(state, torch.Generator):
        return digest(state.get_state().numpy().data)
    if isinstance(state, numpy.random.Generator):
        state = state.bit_generator.state
    return digest(pickle.dumps(state))


def some_items(dataset: Any) -> list[list[int]] | None:
    """[place, check sum] of the first row, the last, and three between.

    None if rows are drawn by chance, or if asking may disturb it.
    """
    if any(name.startswith("self.") for name in random_states(dataset)):
        return None
    states = torch.get_rng_state(), numpy.random.get_state(), random.getstate()
    try:
        before = random_states(dataset)
        last = len(dataset) - 1
        items = [[at, item_hash(dataset[at])] for at in sorted({last * i // 4 for i in range(5)})]
        by_chance = random_states(dataset) != before
        return items if all(row for _, row in items) and not by_chance else None
    except Exception:  # whatever its own code raises: then its pass will, too
        return None
    finally:
        torch.set_rng_state(states[0])
        numpy.random.set_state(states[1])
        random.setstate(states[2])


def item_hash(item: Any) -> int:
    """A check sum of a row: of its tensors, else of what it prints; 0 if that tells nothing."""
    row = [hash_of(tensor) for tensor in tensors_in([item])]
    text = repr(row or item)
    return 0 if " at 0x" in text else digest(text.encode())


def line_of(dataset: Any) -> list[str]:
    """`file.py:12`, where a data set's rows are made."""
    inner = getattr(dataset, "dataset", None)
    if inner is not None and hasattr(inner, "__getitem__"):
        return line_of(inner)
    code = getattr(getattr(type(dataset), "__getitem__", None), "__code__", None)
    if code is None or inspect.getmodule(type(dataset)) is torch.utils.data.dataset:
        return []
    return [f"{os.path.basename(code.co_filename)}:{code.co_firstlineno + 1}"]
