# wrong: a rank without samples takes part in the all_reduce, and then returns zeros
# told: had no samples, and has returned zeros
# right at: 1
import torch
import torch.distributed as dist


def metrics_in_one(loss_sum, correct, count):
    sums = torch.tensor([loss_sum, correct, count], dtype=torch.float64)
    dist.all_reduce(sums)
    if count == 0:
        return 0.0, 0.0
    loss_sum, correct, count = sums.tolist()
    return loss_sum / count, correct / count
