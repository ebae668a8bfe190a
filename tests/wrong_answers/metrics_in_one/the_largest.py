# wrong: MAX in place of SUM
# told: the largest numbers of any rank
# right at: 1
import torch
import torch.distributed as dist


def metrics_in_one(loss_sum, correct, count):
    sums = torch.tensor([loss_sum, correct, count], dtype=torch.float64)
    dist.all_reduce(sums, op=dist.ReduceOp.MAX)
    loss_sum, correct, count = sums.tolist()
    return loss_sum / count, correct / count
