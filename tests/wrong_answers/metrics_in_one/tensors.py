# wrong: tensors of one number, where floats are asked for
# told: What do you return instead
import torch
import torch.distributed as dist


def metrics_in_one(loss_sum, correct, count):
    sums = torch.tensor([loss_sum, correct, count], dtype=torch.float64)
    dist.all_reduce(sums)
    return sums[0] / sums[2], sums[1] / sums[2]
