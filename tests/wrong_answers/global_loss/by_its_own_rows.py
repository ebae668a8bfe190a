# wrong: divides the sum of all by the rows of one
# told: was divided by this rank's rows
# right at: 1
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    total = torch.tensor(loss.item() * rows if rows else 0.0)
    dist.all_reduce(total)
    return total.item() / rows if rows else 0.0
