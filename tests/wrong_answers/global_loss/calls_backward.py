# wrong: calls backward itself, and the graph is used up
# told: uses up or cuts off the graph
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    loss.backward()
    total = loss.item() * rows if rows else 0.0
    totals = torch.tensor([total, rows])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()
