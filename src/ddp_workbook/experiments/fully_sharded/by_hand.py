"""The program by hand with one thing left out or wrong: what that costs, and whether it shows."""

from typing import Any

import torch
import torch.distributed as dist

from ddp_workbook.chapters import fully_sharded_by_hand
from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.chapters.fully_sharded_by_hand import LEARNING_RATE, FullyShardedByHand, Unit
from ddp_workbook.digits import DigitsDataset, DigitsTransformer, Trained
from ddp_workbook.experiments.fully_sharded.memory import Measured, whole_weights
from ddp_workbook.experiments.fully_sharded.wire import ROWS, WIDTH
from ddp_workbook.launcher.launch import launch
from ddp_workbook.recording.memory import MemoryLedger

PLACEHOLDERS, NONE = "autograd keeps placeholders", "autograd keeps the weights"


class KeptByAutograd(FullyShardedByHand):
    """Without placeholders: what forward frees stays in memory, for autograd holds it."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


def whole_weights_by_hand(depth: int = 8, ranks: int = 2) -> dict[str, list]:
    """With placeholders and without: the moments of rank 0, and its bytes of whole weights."""
    of_ranks = launch(two_ways, depth, ranks=ranks)
    steps = {way: [of_rank[way] for of_rank in of_ranks] for way in (PLACEHOLDERS, NONE)}
    return whole_weights(steps, [NONE, PLACEHOLDERS])


def two_ways(depth: int) -> dict[str, Measured]:
    """The third of three steps, with each of the two."""
    device = setup()
    kinds = {PLACEHOLDERS: FullyShardedByHand, NONE: KeptByAutograd}
    measured = {way: _measured(kind, depth, device) for way, kind in kinds.items()}
    cleanup()
    return measured


def _measured(kind: type, depth: int, device: torch.device) -> Measured:
    torch.manual_seed(0)
    model = DigitsTransformer(WIDTH, depth).to(device)
    sharded = kind(model, model.blocks)
    optimizer = torch.optim.AdamW(sharded.parameters(), lr=LEARNING_RATE)
    mine = slice(dist.get_rank(), ROWS, dist.get_world_size())
    digits = DigitsDataset()
    images, labels = digits.images[mine].to(device), digits.labels[mine].to(device)
    for number in range(3):
        optimizer.zero_grad()
        if number < 2:
            forward_and_backward(sharded, images, labels, ROWS)
            optimizer.step()
    with MemoryLedger(sharded, optimizer) as ledger:
        forward_and_backward(sharded, images, labels, ROWS)
        optimizer.step()
    return Measured(ledger.held, ledger.timeline)


def train_with_factor(factor: float, everywhere: bool, **run: int) -> Trained:
    """`train` of the program by hand, with the gradients of one block, or all, times `factor`."""
    right, first = Unit.reduce_scatter, []

    def wrong(unit: Unit, gradients: list) -> list:
        first[:] = first or [unit]  # the unit that backward reaches first: the last block
        pieces = right(unit, gradients)
        if everywhere or unit is first[0]:
            return [piece if piece is None else piece * factor for piece in pieces]
        return pieces

    Unit.reduce_scatter = wrong
    try:
        return fully_sharded_by_hand.train(**run)
    finally:
        Unit.reduce_scatter = right
