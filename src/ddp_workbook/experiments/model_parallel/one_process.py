"""The one process that a cut model must equal, however it is cut."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F

from ddp_workbook.chapters import model_parallel
from ddp_workbook.chapters.digits import (
    DigitsDataset,
    DigitsTransformer,
    Result,
    accuracy,
    batches,
    furthest,
    weights_on_cpu,
)
from ddp_workbook.chapters.model_parallel import (
    BATCH_SIZE,
    DEPTH,
    EPOCHS,
    LEARNING_RATE,
    MOMENTUM,
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
    """The same training without ranks, whole batches at a time."""
    digits = DigitsDataset()
    torch.manual_seed(SEED)
    model = DigitsTransformer(width, depth)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    losses = []
    for epoch in range(epochs):
        for images, labels in batches(digits, batch_size, epoch):
            if len(images) < batch_size:
                continue
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return Result(losses, accuracy(model, digits), weights_on_cpu(model))


def differences(alone: Result, degrees: Sequence[tuple[int, int, int]], **run: Any) -> pd.DataFrame:
    """How far weights and losses are from one process; `degrees` are data, pipeline, tensor."""
    rows = []
    for data, pipeline, tensor in degrees:
        ranks = data * pipeline * tensor
        cut: dict[str, Any] = {"pipeline": pipeline, "tensor": tensor}
        result = launch(model_parallel.train, ranks=ranks, **run, **cut)[0]
        losses = max(abs(a - b) for a, b in zip(result.losses, alone.losses, strict=True))
        rows.append((data, pipeline, tensor, losses, furthest(result.weights, alone.weights)))
    columns = ["data", "pipeline", "tensor", "losses", "weights"]
    return pd.DataFrame(rows, columns=columns).set_index(columns[:3])
