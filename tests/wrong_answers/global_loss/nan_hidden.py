# wrong: nan_to_num hides the nan of a rank that has rows, too
# told: its training is broken
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    total = torch.nan_to_num(loss.detach().double() * rows)
    totals = torch.stack([total, torch.tensor(rows, dtype=torch.float64)])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()
