# wrong: adds up means where sums over rows belong
# told: is a mean a sum
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    totals = torch.tensor([loss.item() if rows else 0.0, rows])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()
