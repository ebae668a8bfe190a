# wrong: rounds to four decimal places, as for a log
# told: Nearly right, but rounded
import torch
import torch.distributed as dist


def metrics_in_one(loss_sum, correct, count):
    sums = torch.tensor([loss_sum, correct, count], dtype=torch.float64)
    dist.all_reduce(sums)
    loss_sum, correct, count = sums.tolist()
    return round(loss_sum / count, 4), round(correct / count, 4)
