# wrong: adds to a tensor that still holds the sums of the call before
# told: What does your function keep from one call to the next
import torch
import torch.distributed as dist

SUMS = torch.zeros(3, dtype=torch.float64)


def metrics_in_one(loss_sum, correct, count):
    SUMS.add_(torch.tensor([loss_sum, correct, count], dtype=torch.float64))
    dist.all_reduce(SUMS)
    loss_sum, correct, count = SUMS.tolist()
    return loss_sum / count, correct / count
