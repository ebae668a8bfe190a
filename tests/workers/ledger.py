"""Workers of test_ledger.py: steps measured by MemoryLedger, and what they leave behind."""

from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

from ddp_workbook.chapters.digits import DigitsTransformer
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.fully_sharded_by_hand import FullyShardedByHand
from ddp_workbook.experiments.fully_sharded.strategies import Strategy
from manyranks.recording.memory import MemoryBreakdown, MemoryLedger, Moment

ROWS = 4


class KeepsAll(FullyShardedByHand):
    """By hand, but what a forward has gathered is held on to until the next one."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.tensors = []
        for module in self.module.modules():
            module.register_forward_pre_hook(self.keep)

    def keep(self, module: nn.Module, inputs: tuple) -> None:
        self.tensors += [p.detach() for p in module._parameters.values() if p is not None]

    def forward(self, *args, **kwargs):
        self.tensors.clear()
        return super().forward(*args, **kwargs)


class Keeping(Strategy):
    """A model that `KeepsAll`."""

    def wrap(self, model: DigitsTransformer, device: torch.device) -> nn.Module:
        return KeepsAll(model, model.blocks)


WAYS = {
    "DDP": Strategy("", "DDP"),
    "DDP, views": Strategy("", "DDP", {"gradient_as_bucket_view": True}),
    "by hand": Strategy("", "by hand"),
    "keeps all": Keeping(""),
    "whole": Strategy("", "one unit"),
    "by block": Strategy(""),
}


class StepRecord(NamedTuple):
    """What a ledger says of a step, and the loss after it with and without one."""

    held: MemoryBreakdown
    timeline: list[Moment]
    losses: list[float]
    unmeasured: list[float]


def steps(width: int, depth: int) -> dict[str, StepRecord]:
    """Four steps in each of WAYS; the third one is measured."""
    device = setup()
    records = {}
    for way in WAYS:
        (ledger, losses), (_, plain_losses) = (
            four_steps(way, width, depth, device, measure) for measure in (True, False)
        )
        records[way] = StepRecord(ledger.held, ledger.timeline, losses, plain_losses)
    cleanup()
    return records


def four_steps(
    way: str, width: int, depth: int, device: torch.device, measure: bool
) -> tuple[MemoryLedger | None, list[float]]:
    """The ledger of the third step, and all losses."""
    torch.manual_seed(0)
    model = WAYS[way].wrap(DigitsTransformer(width, depth), device)
    optimizer = torch.optim.AdamW(model.parameters())
    torch.manual_seed(1 + dist.get_rank())
    images, labels = torch.rand(ROWS, 64), torch.randint(10, (ROWS,))
    losses, ledger = [], None

    def step() -> None:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    for number in range(4):
        if measure and number == 2:
            with MemoryLedger(model, optimizer) as ledger:
                step()
        else:
            step()
    return ledger, losses


def cpu_offload_error() -> str:
    """What CPUOffloadPolicy says on a CPU's mesh: the words of its error, or nothing."""
    device = setup()
    model = nn.Linear(4, 4)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    message = ""
    try:
        fully_shard(model, mesh=mesh, offload_policy=CPUOffloadPolicy())
        model(torch.ones(2, 4)).sum().backward()
    except Exception as error:
        message = str(error)
    cleanup()
    return message
