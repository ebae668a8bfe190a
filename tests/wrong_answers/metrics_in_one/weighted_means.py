# wrong: weights the ranks' means; one without samples has 0 / 0, and nan times 0 is nan
# told: Which rank divides by its own count
# right at: 1
import torch
import torch.distributed as dist


def metrics_in_one(loss_sum, correct, count):
    means = torch.tensor([loss_sum, correct, count], dtype=torch.float64) / count
    weighted = means * count
    dist.all_reduce(weighted)
    loss_sum, correct, count = weighted.tolist()
    return loss_sum / count, correct / count
