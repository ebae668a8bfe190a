"""Models that FullyShardedByHand must train as one process does, and what is looked at."""

import gc
import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.fully_sharded_by_hand import FullyShardedByHand, Unit

ROWS, WIDTH, STEPS = 12, 6, 3  # rows of all ranks together
MAX_NORM = 0.5


def linear() -> nn.Module:
    """A layer and a smooth function."""
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


class Blocks(nn.Module):
    """A layer, three blocks, a layer."""

    def __init__(self, block: Callable[[], nn.Module] = linear) -> None:
        super().__init__()
        self.first = linear()
        self.blocks = nn.ModuleList(block() for _ in range(3))
        self.last = nn.Linear(WIDTH, 5)

    def forward(self, x: Tensor) -> Tensor:
        """[rows, WIDTH] to [rows, 5]."""
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class OddShapes(nn.Module):
    """Parameters of 1 and 2 elements, a scalar, and one of three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.one, self.two = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(2))
        self.cube = nn.Parameter(torch.randn(2, 3, 5))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        turned = torch.einsum("abc,ra->rbc", self.cube, x[:, :2] * self.two).sum((1, 2))
        return (x * self.scale + self.one + turned[:, None]).tanh()


def plain(model: nn.Module, x: Tensor) -> Tensor:
    """Forward and backward; returns the loss."""
    loss = model(x).square().mean()
    loss.backward()
    return loss.detach()


def two_backwards(model: nn.Module, x: Tensor) -> Tensor:
    """Gradients are accumulated over two halves."""
    return plain(model, x) + plain(model, x.flip(1))


def two_forwards(model: nn.Module, x: Tensor) -> Tensor:
    """Two forwards, then one backward through both."""
    loss = model(x).square().mean() + model(x.flip(1)).square().mean()
    loss.backward()
    return loss.detach()


def evaluated_around(model: nn.Module, x: Tensor) -> Tensor:
    """Forwards without gradients before and after the step."""
    with torch.no_grad():
        model(x)
    loss = plain(model, x)
    with torch.no_grad():
        model(x)
    return loss


class Case(NamedTuple):
    """A model, what is a block in it, how a step is taken."""

    build: Callable[[], nn.Module] = Blocks
    blocks: Callable[[Any], Iterable[nn.Module]] = lambda model: model.blocks
    step: Callable[[nn.Module, Tensor], Tensor] = plain


CASES = {
    "blocks": Case(),
    "no blocks": Case(blocks=lambda model: ()),
    "every layer": Case(blocks=lambda m: [x for x in m.modules() if isinstance(x, nn.Linear)]),
    "odd shapes": Case(lambda: Blocks(OddShapes)),
    "two backwards": Case(step=two_backwards),
    "two forwards": Case(step=two_forwards),
    "evaluated around": Case(step=evaluated_around),
}


def differences(fault: bool = False) -> dict[str, str]:
    """For each case, what differs from one process after some steps; "" if nothing.

    With a `fault`, gradients are added up over the ranks, and not averaged.
    """
    setup()
    torch.set_default_dtype(torch.float64)  # so that AdamW shows no rounding
    reduce_scatter = Unit.reduce_scatter
    if fault:
        Unit.reduce_scatter = lambda unit, gradients: [
            shard * dist.get_world_size() for shard in reduce_scatter(unit, gradients)
        ]
    found = {name: difference(case) for name, case in CASES.items()}
    cleanup()
    return found


def difference(case: Case) -> str:
    """What differs from one process: a loss, a norm, or a parameter."""
    torch.manual_seed(3)
    alone = case.build()
    torch.manual_seed(3)
    model = case.build()
    sharded = FullyShardedByHand(model, case.blocks(model))
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.05) for m in (alone, sharded)]
    generator = torch.Generator().manual_seed(0)
    for step in range(STEPS):
        shares = torch.randn(ROWS, WIDTH, generator=generator).chunk(dist.get_world_size())
        for optimizer in optimizers:
            optimizer.zero_grad()
        expected = [case.step(alone, share) for share in shares][dist.get_rank()]
        for parameter in alone.parameters():
            parameter.grad /= len(shares)
        loss = case.step(sharded, shares[dist.get_rank()])
        if abs(loss - expected) > 1e-6:
            return f"step {step}: loss {loss}, not {expected}"
        norms = [nn.utils.clip_grad_norm_(alone.parameters(), MAX_NORM)]
        norms.append(sharded.clip_grad_norm_(MAX_NORM))
        if abs(norms[0] - norms[1]) > 1e-6:
            return f"step {step}: norm {norms[1]}, not {norms[0]}"
        for optimizer in optimizers:
            optimizer.step()
    full = sharded.full_parameters()
    expected = dict(alone.named_parameters())
    if full.keys() != expected.keys():
        return f"names: {sorted(full.keys() ^ expected.keys())}"
    wrong = [name for name, p in expected.items() if not torch.allclose(full[name], p)]
    return f"parameters: {wrong}" if wrong else ""


def units_in_memory() -> dict[str, int]:
    """Units of which a whole parameter is in memory: the most, and after each part of a step.

    With Python's garbage collector off: what is freed is freed at once. "before" counts parameters
    of the model as it was that are still there after sharding.
    """
    setup()
    gc.collect()
    gc.disable()
    storages: dict[int, list[StorageWeakRef]] = {}
    all_gather = Unit.all_gather
    most = 0

    def alive() -> int:
        return sum(any(not ref.expired() for ref in refs) for refs in storages.values())

    def record_gather(unit: Unit) -> list[Tensor]:
        nonlocal most
        refs = [StorageWeakRef(tensor.untyped_storage()) for tensor in all_gather(unit)]
        storages.setdefault(id(unit), []).extend(refs)
        most = max(most, alive())
        return unit.full

    Unit.all_gather = record_gather
    model = Blocks()
    before = [StorageWeakRef(p.untyped_storage()) for p in model.parameters()]
    sharded = FullyShardedByHand(model, model.blocks)
    counts = {"before": sum(not ref.expired() for ref in before)}
    loss = sharded(torch.randn(2, WIDTH)).square().mean()
    counts["forward"] = alive()
    loss.backward()
    counts["backward"] = alive()
    with torch.no_grad():
        sharded(torch.randn(2, WIDTH))
    counts["evaluation"] = alive()
    counts["most"] = most  # before all are asked for
    sharded.full_parameters()
    counts["all parameters"] = alive()
    cleanup()
    return counts


def imported_by_a_step(way: str) -> list[str]:
    """Modules of torch that a first step imports in this rank: the fork server lacks them."""
    before = set(sys.modules)
    importlib.import_module(f"ddp_workbook.chapters.{way}").train(epochs=1, batch_size=1797)
    return sorted(name for name in set(sys.modules) - before if name.startswith("torch"))
