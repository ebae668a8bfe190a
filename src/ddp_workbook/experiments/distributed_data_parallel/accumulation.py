"""A step with several micro-batches on each rank, in five ways: what each sends, and what is wrong.

Pages show only the two wrong ways: the right one is the solution of exercise `accumulate`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.experiments.distributed_data_parallel.hooks import BUCKET, record_backward
from manyranks import figures
from manyranks.recording.collectives import run_and_record

MICRO_BATCHES, ROWS = 4, 16  # of each rank; the rows of one micro-batch
STEPS, LEARNING_RATE, TIMED_STEPS = 3, 0.05, 5
Batch = tuple[Tensor, Tensor]  # images [rows, 64], labels [rows]


def loss_of(model: nn.Module, micro_batch: Batch) -> Tensor:
    """The micro-batch's part of the mean loss over all of them."""
    images, labels = micro_batch
    return F.cross_entropy(model(images), labels) / MICRO_BATCHES


def whole_batch(ddp: DistributedDataParallel, micro_batches: list[Batch]) -> None:
    """No accumulation: all rows at once, which needs the memory for them."""
    images, labels = (torch.cat(parts) for parts in zip(*micro_batches, strict=True))
    F.cross_entropy(ddp(images), labels).backward()


def sync_every_micro_batch(ddp: DistributedDataParallel, micro_batches: list[Batch]) -> None:
    """Accumulates, and averages over the ranks after each micro-batch."""
    for micro_batch in micro_batches:
        loss_of(ddp, micro_batch).backward()


def sync_once(ddp: DistributedDataParallel, micro_batches: list[Batch]) -> None:
    """Accumulates, and averages once."""
    with ddp.no_sync():
        sync_every_micro_batch(ddp, micro_batches[:-1])
    sync_every_micro_batch(ddp, micro_batches[-1:])


def no_sync_around_backward(ddp: DistributedDataParallel, micro_batches: list[Batch]) -> None:
    """Wrong: the forward is outside of no_sync."""
    last = len(micro_batches) - 1
    for number, micro_batch in enumerate(micro_batches):
        loss = loss_of(ddp, micro_batch)
        with ddp.no_sync() if number < last else contextlib.nullcontext():
            loss.backward()


def flag_after_forward(ddp: DistributedDataParallel, micro_batches: list[Batch]) -> None:
    """Wrong: the flag behind no_sync is set by hand, between forward and backward."""
    last = len(micro_batches) - 1
    for number, micro_batch in enumerate(micro_batches):
        loss = loss_of(ddp, micro_batch)
        ddp.require_backward_grad_sync = number == last
        loss.backward()


WAYS: Mapping[str, Callable[[DistributedDataParallel, list[Batch]], None]] = {
    "the whole batch at once": whole_batch,
    "sends after every micro-batch": sync_every_micro_batch,
    "sends once (no_sync)": sync_once,
    "no_sync around backward only": no_sync_around_backward,
    "flag set after forward": flag_after_forward,
}


def micro_batches_of(
    rank: int, world_size: int, device: torch.device | str = "cpu", size: int = ROWS
) -> list[Batch]:
    """The micro-batches of one rank; together all ranks have the first rows of the digits."""
    digits = DigitsDataset()
    rows = torch.arange(MICRO_BATCHES * size * world_size)[rank::world_size].split(size)
    return [(digits.images[part].to(device), digits.labels[part].to(device)) for part in rows]


def steps_of_this_rank(way: str) -> Tensor:
    """The weights, flat, after three steps of SGD with gradients that are made in this way."""
    device = setup()
    torch.manual_seed(0)
    model = DigitsMLP().to(device)
    ddp = DistributedDataParallel(model)
    batches = micro_batches_of(dist.get_rank(), dist.get_world_size(), device)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        WAYS[way](ddp, batches)
        optimizer.step()
    del ddp
    cleanup()
    return nn.utils.parameters_to_vector(model.parameters()).detach().cpu()


def steps_of_one_process(ranks: int) -> Tensor:
    """The weights, flat, after the same steps in one process: all rows of all ranks at once."""
    torch.manual_seed(0)
    model, digits = DigitsMLP(), DigitsDataset()
    rows = slice(MICRO_BATCHES * ROWS * ranks)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(model(digits.images[rows]), digits.labels[rows]).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def compare_ways(ranks: int = 2) -> pd.DataFrame:
    """A row for each way: what rank 0 sends in a step, and what three steps make of the weights.

    Columns: all-reduces and kB a step; the largest difference of rank 0's weights from those of one
    process, and between the ranks.
    """
    alone, rows = steps_of_one_process(ranks), {}
    for way in WAYS:
        of_ranks, wire = run_and_record(steps_of_this_rank, way, ranks=ranks)
        message_bytes = wire.query("rank == 0 and op == 'all_reduce'")["bytes"]
        rows[way] = {
            "all-reduces a step": len(message_bytes) / STEPS,
            "kB a step": message_bytes.sum() / STEPS / 1000,
            "from one process": (of_ranks[0] - alone).abs().max().item(),
            "between the ranks": max(
                (weights - of_ranks[0]).abs().max().item() for weights in of_ranks
            ),
        }
    return pd.DataFrame(rows).T.rename_axis("way")


def timeline_of_this_rank(ways: Sequence[str], width: int = 512, rows: int = 128) -> pd.DataFrame:
    """When this rank computes and when buckets travel, in the quickest of five steps of each way.

    A row for each micro-batch (of `rows` rows) and each all-reduce (micro_batch is 0): way,
    micro_batch, start and end in milliseconds since the step began.
    """
    device = setup()
    torch.manual_seed(0)
    ddp = DistributedDataParallel(DigitsMLP(width, 4).to(device))
    batches = micro_batches_of(dist.get_rank(), dist.get_world_size(), device, rows)
    events, starts = record_backward(ddp), list[float]()
    ddp.register_forward_pre_hook(lambda *_: starts.append(time.perf_counter()))
    table_rows = []
    for way in ways:
        steps = []
        for _ in range(1 + TIMED_STEPS):
            ddp.zero_grad()
            events.clear()
            starts.clear()
            dist.barrier()
            start_time = time.perf_counter()
            WAYS[way](ddp, batches)
            # A micro-batch ends where the next one begins, the last one with the step.
            ends = [*starts[1:], time.perf_counter()]
            spans = [
                (number, *both) for number, both in enumerate(zip(starts, ends, strict=True), 1)
            ]
            spans += [(0, start, end) for what, _, start, end in events if what == BUCKET]
            in_ms = [
                (way, number, *(1e3 * (at - start_time) for at in both)) for number, *both in spans
            ]
            steps.append((ends[-1] - start_time, in_ms))
        # not the first one: after its first backward pass DDP makes its buckets anew
        table_rows += min(steps[1:])[1]
    cleanup()
    return pd.DataFrame(table_rows, columns=["way", "micro_batch", "start", "end"])


@figures.house_style
def lanes(events: pd.DataFrame) -> figures.Picture:
    """For each way a lane with its numbered micro-batches, and one with its all-reduces.

    `events` is what `timeline_of_this_rank` returns.
    """
    sends = events["micro_batch"] == 0
    lane_events = events.assign(
        lane=events["way"].where(~sends, events["way"] + ", on the wire"),
        what=sends.map({True: "all-reduce", False: "compute"}),
        text=events["micro_batch"].map(lambda number: str(number) if number else ""),
    )
    order = [lane for way in events["way"].unique() for lane in (way, f"{way}, on the wire")]
    about = "One step with several micro-batches"
    picture = figures.lanes(lane_events, "milliseconds since the step began", about, order=order)
    for way, group in events.groupby("way", sort=False):
        counts = group["micro_batch"].max(), (group["micro_batch"] == 0).sum()
        picture.alt += " {}: {} micro-batches, {} all-reduces.".format(way, *counts)
    return picture
