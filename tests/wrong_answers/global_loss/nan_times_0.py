# wrong: nan times 0 rows is nan, and reaches all ranks
# told: A rank without rows has the loss nan
# right at: 1
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    totals = torch.tensor([loss.item() * rows, rows])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()
