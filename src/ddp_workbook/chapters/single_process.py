"""Train on the digits in one process: the program that every later chapter must equal.

    python src/ddp_workbook/chapters/single_process.py

`train` is the loop that stays. Later chapters say in it who holds which rows, and put their idea
into `forward_and_backward`. Nothing here knows of ranks: `torchrun --nproc-per-node 4` would run
this same training four times over, and print it four times.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ddp_workbook.digits import (
    DigitsDataset,
    DigitsMLP,
    Trained,
    accuracy,
    batches,
    weights_on_cpu,
)

EPOCHS = 5
BATCH_SIZE = 64  # 1,797 rows are 28 batches of 64, and one of 5: the uneven case comes with the data
WIDTH, DEPTH = 64, 1
LEARNING_RATE = 0.5
SEED = 0


def forward_and_backward(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Add the gradient of the batch's mean loss to the model's .grad; return that loss."""
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    return loss.detach()


def train(
    epochs: int = EPOCHS, batch_size: int = BATCH_SIZE, width: int = WIDTH, depth: int = DEPTH
) -> Trained:
    """Train in this process, on a GPU if there is one."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    digits = DigitsDataset()
    torch.manual_seed(SEED)
    model = DigitsMLP(width, depth).to(device)
    # Not Adam: it divides each gradient by its own size, so a gradient twice too large would not show.
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    losses = []
    for epoch in range(epochs):
        for images, labels in batches(digits, batch_size, epoch):
            optimizer.zero_grad()
            loss = forward_and_backward(model, images.to(device), labels.to(device))
            optimizer.step()
            losses.append(loss)  # not loss.item(): on a GPU that waits until the step is done
    return Trained([loss.item() for loss in losses], accuracy(model, digits), weights_on_cpu(model))


if __name__ == "__main__":
    print(train().report(EPOCHS))
