# wrong: counts in the dtype that torch takes for floats
# told: the last digits are lost
import torch
import torch.distributed as dist


def metrics_in_one(loss_sum, correct, count):
    sums = torch.tensor([loss_sum, correct, count])
    dist.all_reduce(sums)
    loss_sum, correct, count = sums.tolist()
    return loss_sum / count, correct / count
