# wrong: a rank without rows does not come
# told: has returned without it
# right at: 1
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    if rows == 0:
        return 0.0
    totals = torch.tensor([loss.item() * rows, rows])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()
