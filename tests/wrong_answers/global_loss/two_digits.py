# wrong: rounds for the printout
# told: This is the mean, rounded
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    total = loss.item() * rows if rows else 0.0
    totals = torch.tensor([total, rows])
    dist.all_reduce(totals)
    return round((totals[0] / totals[1]).item(), 2)
