# wrong: an integer tensor takes the fractions away
# told: lost their fractions
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    total = loss.item() * rows if rows else 0
    totals = torch.tensor([total, rows], dtype=torch.int64)
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()
