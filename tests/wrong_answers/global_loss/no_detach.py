# wrong: what comes back still has the graph of the loss
# told: keeps the graph of its step in memory
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    total = loss * rows if rows else loss * 0
    totals = torch.stack([total.nan_to_num(), torch.tensor(float(rows))])
    dist.all_reduce(totals)
    return totals[0] / totals[1]
