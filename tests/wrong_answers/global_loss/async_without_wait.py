# wrong: reads the sums before they are there
# told: still at work when your function returned
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    totals = torch.tensor([loss.item() * rows if rows else 0.0, rows])
    dist.all_reduce(totals, async_op=True)
    return (totals[0] / totals[1]).item()
