"""A rank is killed while all ranks save: what `dcp.load` then finds in the folder."""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import signal
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from ddp_workbook.chapters.distributed_data_parallel import cleanup
from manyranks import figures
from manyranks.errors import RankFailed
from manyranks.launcher.launch import launch

ROWS, RANKS = 12, 4
OLD, NEW = 100, 200  # steps
WRITE, FINISHES = "write_data", "finish"  # what a rank is about to do when it is killed


class Kill(NamedTuple):
    """Which rank dies in the second save, before what, and whether that save has a new folder."""

    rank: int
    before: str = WRITE
    fresh: bool = False


KILLS = {
    "old folder, rank 1 killed before it writes": Kill(1),
    "old folder, rank 0 killed before .metadata": Kill(0, FINISHES),
    "new folder, rank 1 killed before it writes": Kill(1, fresh=True),
    "new folder, rank 0 killed before .metadata": Kill(0, FINISHES, fresh=True),
}


def weight(step: int) -> DTensor:
    """A weight in a shard a rank; each of its values is the step that it is of."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return distribute_tensor(torch.full((ROWS, 1), float(step)), mesh, [Shard(0)])


def save(folder: Path, step: int, victim: int | None = None, before: str = WRITE) -> None:
    """A worker: all ranks save the weight of a step, and rank `victim` is killed on the way."""
    dist.init_process_group("gloo")
    if dist.get_rank() == victim:
        setattr(FileSystemWriter, before, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    warnings.simplefilter("ignore")  # all that DCP has to say about an older save in the folder
    dcp.save({"weight": weight(step)}, checkpoint_id=folder)
    cleanup()


def load(folder: Path) -> list[int] | str:
    """A worker: the step that each row is of, or the error's class."""
    dist.init_process_group("gloo")
    logging.disable()  # of torch, which reports a missing file twice
    state = {"weight": weight(0)}
    try:
        dcp.load(state, checkpoint_id=folder)
    except dcp.CheckpointException as error:  # which is no Exception
        return type(error).__name__
    steps = state["weight"].full_tensor().flatten().int().tolist()
    cleanup()
    return steps


def load_after_kills(folder: Path) -> dict[str, list[int] | str]:
    """For each kill: what is loaded after a save of step OLD, and a save of NEW that it ends."""
    launch(save, folder / "old", OLD, ranks=RANKS)
    results = {}
    for words, (rank, before, fresh) in KILLS.items():
        second = folder / words
        if not fresh:
            shutil.copytree(folder / "old", second)
        try:
            launch(save, second, NEW, rank, before, ranks=RANKS)
        except RankFailed as error:
            if error.rank != rank:
                raise
        results[words] = launch(load, second, ranks=RANKS)[0]
    return results


@figures.house_style
def kills_plot(results: Mapping[str, list[int] | str]) -> figures.Picture:
    """A lane a kill: of which step each row is that was loaded, or that nothing was loaded."""
    rows = []
    for words, steps in results.items():
        if isinstance(steps, str):
            rows.append((words, "refused", 0, ROWS, f"refused: {steps}"))
            continue
        places = itertools.groupby(range(ROWS), key=steps.__getitem__)
        for step, group in places:
            first, *rest = group
            kind = "new save" if step == NEW else "old save"
            rows.append((words, kind, first, first + len(rest) + 1, f"step {step}"))
    table = pd.DataFrame(rows, columns=["lane", "what", "start", "end", "text"])
    return figures.lanes(table, "row of the weight", "What dcp.load finds after a kill")
