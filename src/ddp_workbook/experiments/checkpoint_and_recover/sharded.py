"""Checkpoints of a sharded model: saved as shards by all ranks, loaded by any number of them.

`save` and `load` are what the page shows. `train` is the chapter's loop around them: it resumes
from a checkpoint, and writes one on the way.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)

from ddp_workbook.chapters.digits import DigitsDataset, DigitsTransformer, batches, furthest
from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.chapters.fully_sharded import (
    BATCH_SIZE,
    DEPTH,
    LEARNING_RATE,
    MAX_NORM,
    SEED,
    WIDTH,
    shard_by_block,
)
from manyranks import figures

FULL_ON_RANK_0 = StateDictOptions(full_state_dict=True, cpu_offload=True)


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Have every rank write its own shards into `folder`; every rank must call this."""
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state, "step": step}
    dcp.save(state, checkpoint_id=folder)


def load(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Fill both from `folder`, however many ranks wrote it; returns the number of steps done."""
    model_state, optimizer_state = get_state_dict(model, optimizer)  # DTensors, to be filled
    state = {"model": model_state, "optimizer": optimizer_state, "step": 0}
    dcp.load(state, checkpoint_id=folder)  # in place; each rank reads the rows of its shards
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    return state["step"]


class State(NamedTuple):
    """Model and AdamW's state, whole, on the CPU of rank 0; empty on the other ranks."""

    weights: dict[str, Tensor]
    moments: dict[str, Tensor]  # "output.bias exp_avg" and so on


class Run(NamedTuple):
    """A training that began at some step and stopped at another."""

    losses: list[float]  # of the steps that it made: the mean over the rows of the whole batch
    initial: State
    checkpoint: State | None  # what the checkpoint that it wrote must hold
    final: State


def train(
    steps: int,
    resume_from: Path | None = None,
    save_to: Path | None = None,
    save_at: int = 0,
    batch_size: int = BATCH_SIZE,
    width: int = WIDTH,
    depth: int = DEPTH,
) -> Run:
    """Train on all ranks until `steps` steps are done, those before the checkpoint included.

    A checkpoint goes to `save_to` after step `save_at`, and the training continues.
    """
    device = setup()
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    torch.manual_seed(SEED)
    sharded = shard_by_block(DigitsTransformer(width, depth).to(device), device)
    optimizer = torch.optim.AdamW(sharded.parameters(), lr=LEARNING_RATE)
    step = load(resume_from, sharded, optimizer) if resume_from else 0
    losses, saved_state, initial = [], None, whole_state(sharded, optimizer)
    for images, labels in islice(all_batches(batch_size), step, steps):
        optimizer.zero_grad()
        my_images, my_labels = images[mine].to(device), labels[mine].to(device)
        loss = forward_and_backward(sharded, my_images, my_labels, len(images))
        nn.utils.clip_grad_norm_(sharded.parameters(), MAX_NORM)
        optimizer.step()
        losses.append(loss)
        step += 1
        if save_to and step == save_at:
            save(save_to, sharded, optimizer, step)
            saved_state = whole_state(sharded, optimizer)
    losses = torch.tensor(losses, device=device)
    dist.all_reduce(losses)
    final = whole_state(sharded, optimizer)
    cleanup()
    return Run(losses.tolist(), initial, saved_state, final)


def all_batches(batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The chapter's batches, one epoch after the other, without end."""
    digits, epoch = DigitsDataset(), 0
    while True:
        yield from batches(digits, batch_size, epoch)
        epoch += 1


def whole_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """A copy of what model and optimizer hold, on rank 0; all ranks must call this."""
    if not optimizer.state:  # get_state_dict would first run a step with zero gradients
        return State(cloned(get_model_state_dict(model, options=FULL_ON_RANK_0)), {})
    weights, state = get_state_dict(model, optimizer, options=FULL_ON_RANK_0)
    moments = {
        f"{name} {part}": value
        for name, parts in state.get("state", {}).items()
        for part, value in parts.items()
    }
    return State(cloned(weights), cloned(moments))


def cloned(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """With memory of their own: on one rank, the full state dict shares the model's memory."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def save_both_ways(folder: Path, width: int = WIDTH, depth: int = DEPTH) -> tuple[int, int]:
    """A worker: the model as `full.pt` from rank 0, and as shards, into `folder`, which exists.

    Returns the bytes that this rank holds of the shards, and of the full state dict.
    """
    device = setup()
    torch.manual_seed(SEED)
    model = shard_by_block(DigitsTransformer(width, depth).to(device), device)
    shards = model.state_dict()
    dcp.save(shards, checkpoint_id=folder / "shards")
    full = get_model_state_dict(model, options=FULL_ON_RANK_0)  # on every rank
    if dist.get_rank() == 0:
        torch.save(full, folder / "full.pt")
    cleanup()
    return (
        sum(shard.to_local().nbytes for shard in shards.values()),
        sum(tensor.nbytes for tensor in full.values()),
    )


def own_row_count() -> int:
    """A worker: how many rows of `output.weight` are this rank's; they lie in rank order."""
    device = setup()
    model = shard_by_block(DigitsTransformer(WIDTH, DEPTH).to(device), device)
    rows = len(model.state_dict()["output.weight"].to_local())
    cleanup()
    return rows


def differences(resumed_runs: dict[int, Run], uninterrupted_run: Run) -> pd.DataFrame:
    """The largest differences between resumed runs and the run that wrote the checkpoint.

    A column for each number of ranks in `resumed_runs`.
    """
    checkpoint, final = uninterrupted_run.checkpoint, uninterrupted_run.final
    assert checkpoint is not None, "this run wrote no checkpoint"
    columns = {}
    for ranks, run in resumed_runs.items():
        steps = zip(run.losses[::-1], uninterrupted_run.losses[::-1], strict=False)  # the last ones
        columns[ranks] = {
            "weights as loaded": furthest(run.initial.weights, checkpoint.weights),
            "AdamW's state as loaded": furthest(run.initial.moments, checkpoint.moments),
            "losses of the steps since": max(abs(ours - theirs) for ours, theirs in steps),
            "weights after the last step": furthest(run.final.weights, final.weights),
        }
    return pd.DataFrame(columns).rename_axis("largest difference, ranks:", axis=1)


def calls_by_line(wire: pd.DataFrame, rank: int) -> pd.DataFrame:
    """What this rank sent and got, for each of our lines: op, dtype, calls, bytes, received.

    `wire` is the table of `record_collectives` for a worker of this module.
    """
    own = wire[(wire["rank"] == rank) & wire["line"].str.startswith("sharded.py:")]
    numbers = own["line"].str.rpartition(":")[2].astype(int)
    code = [linecache.getline(__file__, number).partition("#")[0].strip() for number in numbers]
    keys = ["line", "op", "dtype"]
    return (
        own.assign(line=code, calls=1)
        .groupby(keys, sort=False, as_index=False)[["calls", "bytes", "received"]]
        .sum()
    )


def files(folder: Path) -> pd.DataFrame:
    """What lies in a folder: file and bytes, a row each, sorted by name."""
    rows = [(path.name, path.stat().st_size) for path in sorted(folder.iterdir())]
    return pd.DataFrame(rows, columns=["file", "bytes"])


@figures.house_style
def rows(rows_by_ranks: Mapping[int, Sequence[int]], parameter: str) -> figures.Picture:
    """A strip for each number of ranks: which rows of a parameter rank 0 holds, rank 1, and so on.

    `rows_by_ranks` says for each strip how many rows each rank has; a rank may have none.
    """
    shards = []
    for ranks, rows_of_ranks in rows_by_ranks.items():
        ends = [0, *accumulate(rows_of_ranks)]
        for rank, (first, end) in enumerate(pairwise(ends)):
            if end > first:
                shards.append((f"on {ranks}", f"rank {rank}", first, end, f"rank {rank}"))
    table = pd.DataFrame(shards, columns=["lane", "what", "start", "end", "text"])
    about = "Which rows each rank holds, without the last number"
    picture = figures.lanes(table, f"row of {parameter}", about, keys={})
    rows = range(table["end"].max())
    picture.axes.set_xticks([row + 0.5 for row in rows], rows)
    picture.axes.tick_params(axis="x", length=0)
    picture.axes.grid(visible=False)
    for row in rows[1:]:
        picture.axes.axvline(row, color="white", linewidth=2)
    return picture


@figures.house_style
def bytes_written_plot(folder: Path) -> figures.Picture:
    """KiB that each rank has written in `save_both_ways`: one file of rank 0, or one of each."""
    shards = files(folder / "shards").set_index("file")["bytes"].filter(like=".distcp") / 1024
    ranks = [f"rank {rank}" for rank in range(len(shards))]
    full = [(folder / "full.pt").stat().st_size / 1024, *[0] * (len(shards) - 1)]
    tables = {
        "full state dict: one file": pd.DataFrame({"KiB": full}, ranks),
        "DCP: a file from each rank": pd.DataFrame({"KiB": list(shards)}, ranks),
    }
    about = "What each rank writes"
    return figures.bars(
        tables, "KiB written", about, by="rank", upright=True, totals="{:,.0f}".format
    )
