"""Twelve programs, each shortened to its mistake: six hang, five are silently wrong, one is right.

Each runs on four ranks. What a silent one notes in its `log` before each step is what the page
then looks at; nothing else in it knows the chart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from ddp_workbook.chapters.when_it_hangs import checksum

STEPS = 4


@dataclass
class TrainingLog:
    """What one rank noted before each of its steps."""

    losses: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)  # check sums
    gradients: list[int] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)

    def note(self, x: Tensor, model: nn.Module, loss: Tensor) -> None:
        """Note the batch, the loss, and the model with its gradients."""
        self.losses.append(loss.item())
        self.rows.append(checksum([x]))
        self.gradients.append(checksum(p.grad for p in model.parameters()))
        self.weights.append(checksum(model.parameters()))


def data() -> TensorDataset:
    """64 rows, the same on every rank."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 8, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True))


def batches(epoch: int = 0) -> DataLoader:
    """This rank's share in batches of 4: four of them."""
    sampler = DistributedSampler(data())
    sampler.set_epoch(epoch)
    return DataLoader(data(), 4, sampler=sampler)


# They hang


def logs_the_mean_on_rank_0(log: TrainingLog) -> None:
    """The loss is averaged where it is printed."""
    model = DDP(nn.Linear(8, 1))
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        loss.backward()
        if dist.get_rank() == 0:
            dist.all_reduce(loss.detach())  # for the log
    dist.barrier()


def evaluates_on_rank_0(log: TrainingLog) -> None:
    """Rank 0 alone calls the DDP model, which broadcasts its buffers first."""
    model = DDP(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)))
    for x, y in batches():
        F.mse_loss(model(x), y).backward()
    if dist.get_rank() == 0:
        for x, _ in batches():
            model(x)  # without model.eval()
    dist.barrier()


def has_a_batch_more(log: TrainingLog) -> None:
    """The files were divided by hand, and rank 1 has more rows."""
    model = DDP(nn.Linear(8, 1))
    own = torch.randn(20 if dist.get_rank() == 1 else 16, 8)
    for x in own.split(4):
        model(x).mean().backward()
    dist.barrier()


def saves_shards_on_rank_0(log: TrainingLog) -> None:
    """Rank 0 alone asks for an unsharded parameter, which all ranks must gather."""
    model = fully_shard(nn.Linear(8, 1))
    for x, y in batches():
        F.mse_loss(model(x), y).backward()
    if dist.get_rank() == 0:
        model.weight.full_tensor()  # to save it
    dist.barrier()


def gathers_in_another_order(log: TrainingLog) -> None:
    """What is shared stands in a set, and each process walks through a set in its own order."""
    calls = {"loss": dist.all_reduce, "image": partial(dist.broadcast, src=0)}
    for name in list(calls)[:: -1 if dist.get_rank() == 2 else 1]:
        calls[name](torch.ones(8))
    dist.barrier()


def skips_a_bad_batch(log: TrainingLog) -> None:
    """A row that is broken on one rank is caught there, and its step left out."""
    model = DDP(nn.Linear(8, 1))
    for step, (x, y) in enumerate(batches()):
        try:
            if dist.get_rank() == 3 and step == 2:
                raise ValueError("broken image")
            F.mse_loss(model(x), y).backward()
        except ValueError:
            continue
    dist.barrier()


# They raise nothing


def correct_program(log: TrainingLog) -> None:
    """Nothing is wrong here."""
    model = DDP(nn.Linear(8, 1))
    train(model, model, batches(), log)


def train(callee: nn.Module, model: nn.Module, loader: DataLoader, log: TrainingLog) -> None:
    """A step for each batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(callee(x), y)
        loss.backward()
        log.note(x, model, loss)
        optimizer.step()


def calls_the_module(log: TrainingLog) -> None:
    """The forward pass goes past the wrapper."""
    model = DDP(nn.Linear(8, 1))
    train(model.module, model, batches(), log)


def reads_the_same_rows(log: TrainingLog) -> None:
    """shuffle=True and one seed on all ranks, no sampler."""
    torch.manual_seed(1)
    model = DDP(nn.Linear(8, 1))
    train(model, model, [*DataLoader(data(), 4, shuffle=True)][:STEPS], log)


def starts_from_its_own_weights(log: TrainingLog) -> None:
    """Gradients are averaged by hand, and the seed is the rank's own."""
    torch.manual_seed(dist.get_rank())
    model = nn.Linear(8, 1)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda p: dist.all_reduce(p.grad, dist.ReduceOp.AVG)
        )
    train(model, model, batches(), log)


def steps_its_schedule_alone(log: TrainingLog) -> None:
    """Rank 0 alone steps the schedule, beside its log."""
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for x, y in batches():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        log.note(x, model, loss)
        optimizer.step()
        if dist.get_rank() == 0:
            schedule.step()


def sums_instead_of_the_mean(log: TrainingLog) -> None:
    """The average of DDP is taken, and then multiplied by a sum over the ranks."""
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        log.note(x, model, loss)
        optimizer.step()


class FaultyProgram(NamedTuple):
    """A program, a thread in which somebody asked about it ("" if none is known), the mistake."""

    program: Callable[[TrainingLog], None]
    source: str
    wrong: str


FAULTY_PROGRAMS = {
    "A": FaultyProgram(correct_program, "", "nothing: it is the one to compare with"),
    "B": FaultyProgram(
        logs_the_mean_on_rank_0,
        "https://github.com/pytorch/pytorch/issues/54059",
        "an all_reduce under `if rank == 0`",
    ),
    "C": FaultyProgram(
        evaluates_on_rank_0,
        "https://github.com/pytorch/pytorch/issues/20611",
        "rank 0 alone calls the DDP model, whose forward pass broadcasts buffers",
    ),
    "D": FaultyProgram(
        has_a_batch_more,
        "https://github.com/pytorch/pytorch/issues/38174",
        "one rank has a batch more",
    ),
    "E": FaultyProgram(
        saves_shards_on_rank_0,
        "https://github.com/pytorch/pytorch/issues/122903",
        "a sharded model is gathered by rank 0 alone",
    ),
    "F": FaultyProgram(
        gathers_in_another_order,
        "https://github.com/huggingface/pytorch-image-models/issues/1224",
        "a rank makes the same calls in another order",
    ),
    "G": FaultyProgram(
        skips_a_bad_batch,
        "",
        "an exception is caught on one rank, which then leaves out a step",
    ),
    "H": FaultyProgram(
        calls_the_module,
        "https://github.com/jingyaogong/minimind/issues/853",
        "model.module is called, so DDP averages nothing",
    ),
    "I": FaultyProgram(
        reads_the_same_rows,
        "",
        "all ranks read the same rows",
    ),
    "J": FaultyProgram(
        starts_from_its_own_weights,
        "",
        "equal gradients, added to unequal weights",
    ),
    "K": FaultyProgram(
        steps_its_schedule_alone,
        "https://github.com/huggingface/accelerate/issues/662",
        "the learning rate differs, so the replicas drift apart",
    ),
    "L": FaultyProgram(
        sums_instead_of_the_mean,
        "https://github.com/opendilab/LightZero/issues/200",
        "DDP has averaged already; the sum makes the gradient four times as large",
    ),
}
