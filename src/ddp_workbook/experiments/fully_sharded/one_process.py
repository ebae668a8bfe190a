"""The one process that every way of sharding must equal."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn

from ddp_workbook.chapters.digits import (
    DigitsDataset,
    DigitsTransformer,
    Result,
    accuracy,
    batches,
    furthest,
    weights_on_cpu,
)
from ddp_workbook.chapters.fully_sharded import (
    BATCH_SIZE,
    DEPTH,
    EPOCHS,
    LEARNING_RATE,
    MAX_NORM,
    SEED,
    WIDTH,
)
from manyranks.launcher.launch import launch


def one_process(
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    width: int = WIDTH,
    depth: int = DEPTH,
) -> Result:
    """The transformer trained without ranks: what every way of sharding must equal."""
    digits = DigitsDataset()
    torch.manual_seed(SEED)
    model = DigitsTransformer(width, depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    losses = []
    for epoch in range(epochs):
        for images, labels in batches(digits, batch_size, epoch):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
            optimizer.step()
            losses.append(loss.item())
    return Result(losses, accuracy(model, digits), weights_on_cpu(model))


def differences(
    programs: Sequence[ModuleType], alone: Result, ranks: Sequence[int], **run: Any
) -> pd.DataFrame:
    """How far the weights are from those of one process, for each program and number of ranks."""
    values = {
        (program.__name__.rpartition(".")[2], count): furthest(
            launch(program.train, ranks=count, **run)[0].weights, alone.weights
        )
        for program in programs
        for count in ranks
    }
    series = pd.Series(values).rename_axis(["program", "ranks"])
    return series.to_frame("largest difference from one process")
