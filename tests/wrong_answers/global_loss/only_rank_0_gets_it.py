# wrong: reduce leaves the sum on rank 0 alone
# told: After reduce or gather one rank alone has the result
# right at: 1
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    totals = torch.tensor([loss.item() * rows if rows else 0.0, rows])
    dist.reduce(totals, dst=0)
    return (totals[0] / totals[1]).item()
