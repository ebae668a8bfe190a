"""`async_save` beside `save`: how long training waits, and which collectives may meet."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from ddp_workbook.chapters.distributed_data_parallel import cleanup
from manyranks import figures

STEPS, SAVE_AFTER_STEP = 12, 3
COMPUTE = 0.03  # seconds of a step
DISK_WRITE_S = 0.3  # seconds of a write; a sleep, because the disks of readers differ
VALUES = 2_000_000  # float32 on each rank
SAVES, REDUCES = 5, 100


class SlowDisk(dcp.FileSystemWriter):
    """Writes as DCP does, on a disk that takes its time."""

    def write_data(self, *args):
        """Called by each rank, in the training's thread or in another one."""
        time.sleep(DISK_WRITE_S)
        return super().write_data(*args)


class Event(NamedTuple):
    """What a thread did; seconds since the first step."""

    lane: str
    what: str
    start: float
    end: float


def save_timeline(folder: Path, asynchronous: bool) -> tuple[list[Event], float]:
    """A worker: some steps, a save among them; what the threads did, and the value that was saved.

    After each step every value is one larger, also while the save is still on its way.
    """
    dist.init_process_group("gloo")
    group = dist.new_group(backend="gloo")  # for the saves alone
    state = {f"weight_{dist.get_rank()}": torch.zeros(VALUES)}
    (weight,) = state.values()
    name, events = "async_save" if asynchronous else "save", []
    writer, write_ends, pending = SlowDisk(folder), [], None
    dist.barrier()
    start_time = time.perf_counter()
    now = lambda: time.perf_counter() - start_time  # noqa: E731
    for step in range(STEPS):
        start = now()
        time.sleep(COMPUTE)
        dist.all_reduce(torch.ones(1000))
        weight += 1
        events.append(Event(f"{name}: training", "step", start, now()))
        if step + 1 == SAVE_AFTER_STEP:
            start = now()
            if asynchronous:
                pending = dcp.async_save(state, storage_writer=writer, process_group=group)
                pending.add_done_callback(lambda _: write_ends.append(now()))
            else:
                dcp.save(state, storage_writer=writer)
            events.append(Event(f"{name}: training", "waits", start, now()))
            copy_end = now()
    if pending:
        pending.result()  # raises what went wrong in the thread
        events.append(Event(f"{name}: its thread", "writes", copy_end, write_ends[0]))
    dcp.load(state, checkpoint_id=folder)
    cleanup()
    return events, weight.mean().item()


@figures.house_style
def timelines_plot(of_ways: Sequence[tuple[list[Event], float]]) -> figures.Picture:
    """Lanes of one rank: the training with `save`, and with `async_save` with its thread."""
    events = pd.DataFrame([event for events, _ in of_ways for event in events])
    events[["start", "end"]] *= 1e3
    about = f"{STEPS} steps with a save after step {SAVE_AFTER_STEP}"
    return figures.lanes(events, "milliseconds on rank 0", about)


def all_reduce_during_save(folder: Path, own_group: bool) -> int:
    """A worker: trains on while saves are on their way; how many of its sums were wrong."""
    dist.init_process_group("gloo")
    group = dist.new_group(backend="gloo") if own_group else None  # None: the training's group
    state, wrong = {f"weight_{dist.get_rank()}": torch.zeros(1000)}, 0
    for number in range(SAVES):
        save = dcp.async_save(state, checkpoint_id=folder / f"{number}", process_group=group)
        for _ in range(REDUCES):
            total = torch.ones(1)
            dist.all_reduce(total)
            wrong += total.item() != dist.get_world_size()
        save.result()
    cleanup()
    return wrong


def dcp_round_trip(folder: Path) -> dict[str, int]:
    """A worker: saves its number under several keys; the number that comes back for each.

    The last key is another one on each rank.
    """
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    state = {
        "large tensor": torch.full((1000,), rank),
        "small tensor": torch.tensor([rank]),
        "number": rank,
        "list": [rank],
        f"number_{rank}": rank,
    }
    dcp.save(state, checkpoint_id=folder)
    state[f"number_{rank}"] = None
    dcp.load(state, checkpoint_id=folder)
    cleanup()
    values = [int(torch.as_tensor(value).max()) for value in state.values()]
    return dict(zip([*list(state)[:-1], "number_<rank>"], values, strict=True))
