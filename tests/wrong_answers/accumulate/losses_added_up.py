# wrong: one backward for the sum of all losses: all graphs are in memory
# told: One backward for all keeps the graphs
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    losses = [F.cross_entropy(ddp(images), labels) for images, labels in micro_batches]
    (sum(losses) / len(losses)).backward()
    optimizer.step()
