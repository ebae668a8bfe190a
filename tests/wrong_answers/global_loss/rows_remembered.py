# wrong: adds up the rows in the first call alone
# told: the mean over all rows
# told: Made first, this call is right
import torch
import torch.distributed as dist

ROWS = []


def global_loss(loss, rows):
    totals = torch.tensor([loss.item() * rows if rows else 0.0, rows])
    dist.all_reduce(totals)
    ROWS.append(totals[1].item())
    return totals[0].item() / ROWS[0]
