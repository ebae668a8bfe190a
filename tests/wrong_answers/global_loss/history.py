# wrong: keeps the loss of every call, and with it the graph
# told: the graphs of earlier calls are still in memory
import torch
import torch.distributed as dist

LOSSES = []


def global_loss(loss, rows):
    LOSSES.append(loss)
    totals = torch.tensor([loss.item() * rows if rows else 0.0, rows])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()
