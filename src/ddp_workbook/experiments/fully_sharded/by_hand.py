"""The program by hand with one thing left out or wrong: what that costs, and whether it shows."""

from __future__ import annotations

import copy
import itertools
from functools import partial
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from ddp_workbook.chapters.digits import DigitsDataset, DigitsTransformer, batches, furthest
from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.chapters.fully_sharded_by_hand import LEARNING_RATE, MAX_NORM, FullyShardedByHand
from ddp_workbook.experiments.fully_sharded import memory
from ddp_workbook.experiments.fully_sharded.strategies import (
    WIDTH,
    StepMeasurement,
    Strategy,
    measure_steps,
)
from manyranks import figures
from manyranks.launcher.launch import launch

# Each with whether its gradients are clipped.
OPTIMIZERS = {
    "AdamW, clipped": (partial(torch.optim.AdamW, lr=LEARNING_RATE), True),
    "plain SGD": (partial(torch.optim.SGD, lr=0.05), False),
}
PLACEHOLDERS, NONE = "autograd keeps placeholders", "autograd keeps the weights"


class FullyShardedWithoutPlaceholders(FullyShardedByHand):
    """Without placeholders: what forward frees stays in memory, because autograd holds it."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


class WithoutPlaceholders(Strategy):
    """By hand, but `FullyShardedWithoutPlaceholders`."""

    def wrap(self, model: DigitsTransformer, device: torch.device) -> nn.Module:
        return FullyShardedWithoutPlaceholders(model, model.blocks)


def whole_weights(depth: int = 8, ranks: int = 2) -> figures.Picture:
    """Which weights are gathered on rank 0, by moment: without placeholders, and with them."""
    return memory.whole_weights(steps_by_hand(depth, ranks), NONE, PLACEHOLDERS)


def steps_by_hand(depth: int, ranks: int = 2) -> dict[str, list[StepMeasurement]]:
    """With placeholders and without: what each rank measured."""
    ways = [Strategy(PLACEHOLDERS, "by hand"), WithoutPlaceholders(NONE)]
    of_ranks = launch(measure_steps, ways, WIDTH, depth, ranks=ranks)
    return {way.name: [of_rank[way.name] for of_rank in of_ranks] for way in ways}


def differences_with_factors(steps: int = 20, ranks: int = 2) -> pd.DataFrame:
    """How far weights are from one process, by mistake and optimizer: gradients times 2."""
    mistakes = {
        "none": (1.0, True),
        "last block, doubled": (2.0, False),
        "all gradients, doubled": (2.0, True),
    }
    # Six trainings in one launch take seconds, but more than a minute on a very busy machine.
    rows = launch(differences_by_factor, list(mistakes.values()), steps, ranks=ranks, timeout=300)[
        0
    ]
    return pd.DataFrame(rows, index=mistakes).rename_axis("gradients")


def differences_by_factor(mistakes: list[tuple[float, bool]], steps: int) -> list[dict[str, float]]:
    """For each (factor, everywhere) the differences after this many steps, by optimizer."""
    device = setup()
    rows = [
        {
            name: max_weight_difference(name, factor, everywhere, steps, device)
            for name in OPTIMIZERS
        }
        for factor, everywhere in mistakes
    ]
    cleanup()
    return rows


def max_weight_difference(
    optimizer: str, factor: float, everywhere: bool, steps: int, device: torch.device
) -> float:
    """Train sharded by hand and whole, side by side; the largest difference of their weights.

    The gradients of the last block, or of everything, are multiplied by `factor` where they are
    sharded. Each rank trains the whole model on the whole batch.
    """
    torch.manual_seed(0)
    whole = DigitsTransformer().to(device)
    sharded = FullyShardedByHand(model := copy.deepcopy(whole), model.blocks)
    make, clips = OPTIMIZERS[optimizer]
    optimizers = make(whole.parameters()), make(sharded.parameters())
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    last = {id(shard) for shard in sharded.units[-2].shards}  # the outermost unit comes after it
    for images, labels in itertools.islice(batches(DigitsDataset(), 90, epoch=0), steps):
        images, labels = images.to(device), labels.to(device)
        for optim in optimizers:
            optim.zero_grad()
        F.cross_entropy(whole(images), labels).backward()
        forward_and_backward(sharded, images[mine], labels[mine], len(images))
        for shard in sharded.parameters():
            if everywhere or id(shard) in last:
                shard.grad *= factor
        if clips:
            nn.utils.clip_grad_norm_(whole.parameters(), MAX_NORM)
            sharded.clip_grad_norm_(MAX_NORM)
        for optim in optimizers:
            optim.step()
    return furthest(sharded.full_parameters(), dict(whole.named_parameters()))
