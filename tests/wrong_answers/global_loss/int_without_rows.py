# wrong: 0 instead of 0.0: where there are no rows, the tensor is int64
# told: different shape or dtype on the ranks
# right at: 1
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    totals = torch.tensor([loss.item() * rows if rows else 0, rows])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()
