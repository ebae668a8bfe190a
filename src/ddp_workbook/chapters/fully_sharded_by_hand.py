"""Train with every parameter, gradient and optimizer state sharded over the ranks, by hand.

    torchrun --standalone --nproc-per-node 4 src/ddp_workbook/chapters/fully_sharded_by_hand.py

New since collectives.py: between two uses no rank has a full parameter tensor. This rank's shard of
each is in `FullyShardedByHand`. Before a block's forward an all-gather collects its parameters, and
afterwards they are freed. In backward they are gathered again, and a reduce-scatter leaves each
rank the gradient of its own shards. The optimizer sees nothing but shards. The model is a
transformer, and its optimizer AdamW, which keeps two numbers for each parameter.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ddp_workbook.chapters.digits import (
    DigitsDataset,
    DigitsTransformer,
    Result,
    accuracy,
    batches,
)
from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.chapters.training_run import run

EPOCHS, BATCH_SIZE = 3, 64
WIDTH, DEPTH = 64, 3
LEARNING_RATE, MAX_NORM = 0.002, 1.0
SEED = 0


def shard(tensor: Tensor) -> Tensor:
    """This rank's shard: flattened, padded with zeros to a multiple of the ranks, and split."""
    ranks = dist.get_world_size()
    padded = F.pad(tensor.flatten(), (0, -tensor.numel() % ranks))
    # A clone: a view would keep the full tensor in memory.
    return padded.view(ranks, padded.numel() // ranks)[dist.get_rank()].clone()


class Unit:
    """The parameters of `model` with these `names`: gathered together, and freed together."""

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        paths = [name.rpartition(".") for name in names]
        self.names = names
        self.places = [(model.get_submodule(path), name) for path, _, name in paths]
        full = [model.get_parameter(name) for name in names]
        self.shapes = [parameter.shape for parameter in full]
        self.shards = [nn.Parameter(shard(parameter.detach())) for parameter in full]
        self.full: list[Tensor] = []  # while they are gathered
        self.set_parameters(self.shards)

    def set_parameters(self, tensors: Sequence[Tensor]) -> None:
        """Have the modules find these where their parameters were."""
        for (module, name), tensor in zip(self.places, tensors, strict=True):
            # Past `setattr`, which takes nothing but an nn.Parameter here.
            module._parameters[name] = tensor  # type: ignore[assignment]

    def all_gather(self) -> list[Tensor]:
        """All parameters in full, from the shards of all ranks; one all-gather."""
        own = torch.cat([shard.detach() for shard in self.shards])
        everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, own)
        sizes = [shard.numel() for shard in self.shards]
        by_parameter = zip(*[theirs.split(sizes) for theirs in everyone], strict=True)
        self.full = [
            torch.cat(shards)[: shape.numel()].view(shape)
            for shards, shape in zip(by_parameter, self.shapes, strict=True)
        ]
        return self.full

    def gather_again(self, *_: Any) -> None:
        """Called when backward reaches what forward has freed."""
        if not self.full:
            self.all_gather()

    def free(self) -> None:
        """Release the full parameters; the modules find the shards again."""
        self.set_parameters(self.shards)
        self.full = []

    def reduce_scatter(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """This rank's shard of each gradient's mean over the ranks; one reduce-scatter."""
        ranks = dist.get_world_size()
        rows = []  # for each gradient: row r is rank r's shard of it
        for gradient in gradients:
            flat = F.pad(gradient.flatten(), (0, -gradient.numel() % ranks))
            rows.append(flat.view(ranks, -1))
        shards = torch.cat(rows, dim=1)
        own = torch.empty_like(shards[0])
        dist.reduce_scatter(own, list(shards))
        own /= ranks  # it sums
        return own.split([row.shape[1] for row in rows])


class Gather(torch.autograd.Function):
    """Forward: from shards to full parameters. Backward: from full gradients to shards."""

    @staticmethod
    def forward(ctx: Any, unit: Unit, *shards: Tensor) -> tuple[Tensor, ...]:
        ctx.unit = unit
        return tuple(tensor.detach() for tensor in unit.all_gather())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple:
        ctx.unit.free()  # autograd comes here when every use of them has had its turn
        return None, *ctx.unit.reduce_scatter(gradients)


class Placeholder(NamedTuple):
    """What autograd keeps for backward in place of a gathered parameter, or of a view of one."""

    unit: Unit
    number: int
    geometry: tuple  # size, stride, offset


class FullyShardedByHand(nn.Module):
    """`module`, with its parameters sharded over the ranks and gathered only while they are used.

    Each of `blocks`, modules inside `module` that return a tensor, is gathered by itself; what is
    left over, the outermost unit, is gathered for the whole forward and backward. All ranks start
    with equal parameters, and each calls forward and backward equally often. Gradients are means
    over the ranks, as with DDP. Every parameter is trained, and none is shared between units.
    """

    def __init__(self, module: nn.Module, blocks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.module = module
        paths = {part: f"{path}." if path else "" for path, part in module.named_modules()}
        left_over = [name for name, _ in module.named_parameters()]
        self.units: list[Unit] = []
        for part in (*blocks, module):
            names = [name for name in left_over if name.startswith(paths[part])]
            left_over = [name for name in left_over if name not in names]
            if names:
                self.units.append(unit := Unit(module, names))
                part.register_forward_pre_hook(
                    lambda *_, unit=unit: unit.set_parameters(Gather.apply(unit, *unit.shards))
                )
                part.register_forward_hook(partial(reshard_after_forward, unit, part is module))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's."""
        with saved_tensors_hooks(self._pack, self._unpack):  # else autograd keeps what we free
            return self.module(*args, **kwargs)

    def _pack(self, tensor: Tensor) -> Tensor | Placeholder:
        """What autograd is to keep of a tensor that backward needs."""
        storage = tensor.untyped_storage().data_ptr()
        for unit in self.units:
            for number, full in enumerate(unit.full):
                if full.untyped_storage().data_ptr() == storage:
                    geometry = (tensor.size(), tensor.stride(), tensor.storage_offset())
                    return Placeholder(unit, number, geometry)
        return tensor

    def _unpack(self, entry: Tensor | Placeholder) -> Tensor:
        """The tensor again, in backward, where its unit has been gathered again."""
        if isinstance(entry, Tensor):
            return entry
        return entry.unit.full[entry.number].as_strided(*entry.geometry)

    @torch.no_grad()
    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """`torch.nn.utils.clip_grad_norm_` for sharded gradients; the norm of all of them."""
        shards = [shard.grad for unit in self.units for shard in unit.shards]
        squares = sum(shard.square().sum() for shard in shards)
        dist.all_reduce(squares)  # the padding adds zeros
        norm = squares.sqrt()
        for shard in shards:
            shard *= (max_norm / (norm + 1e-6)).clamp(max=1.0)
        return norm

    def full_parameters(self) -> dict[str, Tensor]:
        """Every parameter of the module by its name, in full. All ranks must call this."""
        full: dict[str, Tensor] = {}
        for unit in self.units:
            full |= zip(unit.names, unit.all_gather(), strict=True)
            unit.free()
        return full


def reshard_after_forward(
    unit: Unit, keep: bool, module: nn.Module, inputs: tuple, output: Tensor
) -> None:
    """After a forward: the shards again, and the full parameters freed unless `keep`.

    They are gathered again as soon as backward reaches the output.
    """
    unit.set_parameters(unit.shards)
    if not (keep and torch.is_grad_enabled()):  # backward needs the outermost unit at once
        unit.free()
    if output.requires_grad:
        output.register_hook(unit.gather_again)


def train(
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    width: int = WIDTH,
    depth: int = DEPTH,
) -> Result:
    """Train on all ranks together; every rank returns the same."""
    device = setup()
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    digits = DigitsDataset()
    torch.manual_seed(SEED)
    model = DigitsTransformer(width, depth).to(device)
    sharded = FullyShardedByHand(model, model.blocks)
    optimizer = torch.optim.AdamW(sharded.parameters(), lr=LEARNING_RATE)
    losses = []
    for epoch in range(epochs):
        for images, labels in batches(digits, batch_size, epoch):
            optimizer.zero_grad()
            my_images, my_labels = images[mine].to(device), labels[mine].to(device)
            loss = forward_and_backward(sharded, my_images, my_labels, len(images))
            sharded.clip_grad_norm_(MAX_NORM)
            optimizer.step()
            losses.append(loss)
    losses = torch.tensor(losses, device=device)
    dist.all_reduce(losses)
    right = accuracy(sharded, digits)  # on all ranks: its forward gathers
    weights = {name: full.cpu() for name, full in sharded.full_parameters().items()}
    cleanup()
    return Result([loss.item() for loss in losses], right, weights)


if __name__ == "__main__":
    run(train)
