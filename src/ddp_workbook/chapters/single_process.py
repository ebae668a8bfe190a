"""Train on the digits in one process: the result that every later chapter must reproduce.

    python src/ddp_workbook/chapters/single_process.py

Later chapters keep the loop in `train`, decide there which rank gets which rows, and put their new
idea into `forward_and_backward`. Nothing here knows of ranks: `torchrun --nproc-per-node 4` would
run the same training four times and print the same result four times.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ddp_workbook.chapters.digits import (
    DigitsDataset,
    DigitsMLP,
    Result,
    accuracy,
    batches,
    weights_on_cpu,
)
from ddp_workbook.chapters.training_run import run

EPOCHS, BATCH_SIZE = 3, 64  # 1,797 rows are 28 batches of 64 and one of 5, in every epoch
WIDTH, DEPTH = 64, 1
LEARNING_RATE, MOMENTUM = 0.05, 0.9  # not Adam, which hides a gradient that is twice too large
SEED = 0


def forward_and_backward(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Add the gradient of the batch's mean loss to the model's .grad; return that loss."""
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    return loss.detach()  # not loss.item(): on a GPU that would wait until the step is done


def train(
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    width: int = WIDTH,
    depth: int = DEPTH,
) -> Result:
    """Train in this process, on the GPU if there is one."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    digits = DigitsDataset()
    torch.manual_seed(SEED)
    model = DigitsMLP(width, depth).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    losses = []
    for epoch in range(epochs):
        for images, labels in batches(digits, batch_size, epoch):
            optimizer.zero_grad()
            loss = forward_and_backward(model, images.to(device), labels.to(device))
            optimizer.step()
            losses.append(loss)
    return Result([loss.item() for loss in losses], accuracy(model, digits), weights_on_cpu(model))


if __name__ == "__main__":
    run(train)
