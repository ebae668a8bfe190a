# wrong: one all_reduce for each number
# told: Which numbers could you put into one tensor
import torch
import torch.distributed as dist


def metrics_in_one(loss_sum, correct, count):
    sums = [torch.tensor(float(n), dtype=torch.float64) for n in (loss_sum, correct, count)]
    for one in sums:
        dist.all_reduce(one)
    return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()
