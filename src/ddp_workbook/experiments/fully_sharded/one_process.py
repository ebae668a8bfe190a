"""The one process that every way of sharding must equal."""

import torch
import torch.nn.functional as F
from torch import nn

from ddp_workbook.chapters.fully_sharded import (
    BATCH_SIZE,
    DEPTH,
    EPOCHS,
    LEARNING_RATE,
    MAX_NORM,
    SEED,
    WIDTH,
)
from ddp_workbook.digits import (
    DigitsDataset,
    DigitsTransformer,
    Trained,
    accuracy,
    batches,
    weights_on_cpu,
)


def one_process(
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    width: int = WIDTH,
    depth: int = DEPTH,
) -> Trained:
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
    return Trained(losses, accuracy(model, digits), weights_on_cpu(model))


def apart(ours: Trained, theirs: Trained) -> float:
    """The largest difference between the weights of two runs."""
    return max(
        (ours.weights[name] - theirs.weights[name]).abs().max().item() for name in theirs.weights
    )
