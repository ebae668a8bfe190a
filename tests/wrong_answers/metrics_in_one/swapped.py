# wrong: accuracy first
# told: but swapped
import torch
import torch.distributed as dist


def metrics_in_one(loss_sum, correct, count):
    sums = torch.tensor([loss_sum, correct, count], dtype=torch.float64)
    dist.all_reduce(sums)
    loss_sum, correct, count = sums.tolist()
    return correct / count, loss_sum / count
