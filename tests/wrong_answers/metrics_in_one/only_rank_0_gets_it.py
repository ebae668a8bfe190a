# wrong: reduce leaves the sums on rank 0 alone
# told: After reduce or gather, only one rank
# right at: 1
import torch
import torch.distributed as dist


def metrics_in_one(loss_sum, correct, count):
    sums = torch.tensor([loss_sum, correct, count], dtype=torch.float64)
    dist.reduce(sums, dst=0)
    loss_sum, correct, count = sums.tolist()
    return loss_sum / count, correct / count
