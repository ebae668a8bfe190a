# wrong: detach shares the memory of the loss
# told: detach() and data share
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    total = loss.detach()
    total *= rows
    totals = torch.stack([total.nan_to_num(), torch.tensor(float(rows))])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()
