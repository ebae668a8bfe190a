# wrong: one collective for the losses, one for the rows
# told: Which numbers could travel in the same tensor
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    total = torch.tensor(loss.item() * rows if rows else 0.0)
    all_rows = torch.tensor(rows)
    dist.all_reduce(total)
    dist.all_reduce(all_rows)
    return (total / all_rows).item()
