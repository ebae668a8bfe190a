"""One step of the program by hand, and what a rank holds after each change."""

from collections.abc import Callable

import torch
import torch.distributed as dist

from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.chapters.fully_sharded_by_hand import LEARNING_RATE, FullyShardedByHand, Unit
from ddp_workbook.digits import DigitsDataset, DigitsTransformer
from ddp_workbook.figures.fully_sharded.step import NONE, PIECE, WHOLE, Moment

ROWS = 64


def moments_of_a_step(width: int = 16, depth: int = 3) -> list[Moment]:
    """What this rank holds of each block, from before the step to after it.

    What is gathered for the whole step, outside the blocks, is not in it.
    """
    device = setup()
    torch.manual_seed(0)
    model = DigitsTransformer(width, depth).to(device)
    sharded = FullyShardedByHand(model, model.blocks)
    optimizer = torch.optim.AdamW(sharded.parameters(), lr=LEARNING_RATE)
    notes = Notes(sharded, optimizer)
    mine = slice(dist.get_rank(), ROWS, dist.get_world_size())
    digits = DigitsDataset()
    images, labels = digits.images[mine].to(device), digits.labels[mine].to(device)
    forward_and_backward(sharded, images, labels, ROWS)
    optimizer.step()
    notes.note("AdamW, on the pieces", None)
    cleanup()
    return notes.moments


class Notes:
    """Records a moment whenever the unit of a block gathers, frees or reduces."""

    def __init__(self, sharded: FullyShardedByHand, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.units = sharded.units[:-1]  # the last one is what is left over
        self.moments: list[Moment] = []
        self.in_backward: set[int] = set()  # units whose whole gradient is there
        self.note("before the step", None)
        for index, (block, unit) in enumerate(zip(sharded.module.blocks, self.units, strict=True)):
            unit.all_gather = self.after(unit.all_gather, "all-gather", index)
            unit.free = self.on_free(unit, index)
            unit.reduce_scatter = self.on_reduce(unit, index)
            block.register_forward_hook(
                lambda *_, index=index: self.note(f"forward, block {index + 1}", index),
                prepend=True,  # before the hook that frees
            )

    def note(self, doing: str, block: int | None) -> None:
        """Add a moment: what is there now."""
        self.moments.append(
            Moment(
                doing,
                block,
                tuple(WHOLE if unit.whole else PIECE for unit in self.units),
                tuple(self._gradient(index) for index in range(len(self.units))),
                tuple(self._state(unit) for unit in self.units),
            )
        )

    def _gradient(self, index: int) -> str:
        if index in self.in_backward:
            return WHOLE
        return NONE if self.units[index].shards[0].grad is None else PIECE

    def _state(self, unit: Unit) -> str:
        return PIECE if unit.shards[0] in self.optimizer.state else NONE

    def after(self, method: Callable, name: str, index: int) -> Callable:
        """The method, which then records a moment."""

        def noted(*args):
            result = method(*args)
            self.note(f"{name}, block {index + 1}", index)
            return result

        return noted

    def on_free(self, unit: Unit, index: int) -> Callable:
        """`free`, recorded: afterwards in forward, before in backward, with whole gradients."""
        free = unit.free

        def noted():
            if not unit.whole:
                return
            if not torch.is_grad_enabled():  # autograd is about to reduce
                self.in_backward.add(index)
                self.note(f"backward, block {index + 1}", index)
                free()
            else:
                free()
                self.note(f"free, block {index + 1}", index)

        return noted

    def on_reduce(self, unit: Unit, index: int) -> Callable:
        """`reduce_scatter`, recorded when this rank has only its piece of the gradient."""
        reduce = unit.reduce_scatter

        def noted(gradients):
            pieces = reduce(gradients)
            self.in_backward.discard(index)
            for shard, piece in zip(unit.shards, pieces, strict=True):
                shard.grad = piece  # autograd does this next
            self.note(f"reduce-scatter, block {index + 1}", index)
            for shard in unit.shards:
                shard.grad = None
            return pieces

        return noted
