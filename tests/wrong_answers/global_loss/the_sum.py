# wrong: the sum of the rows' losses, not divided
# told: What makes it a mean
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    total = torch.tensor(loss.item() * rows if rows else 0.0)
    dist.all_reduce(total)
    return total.item()
