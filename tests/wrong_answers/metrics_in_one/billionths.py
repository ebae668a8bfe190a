# wrong: a loss is a whole number of billionths, so that all three are int64
# told: A loss that is sent as a whole number
import torch
import torch.distributed as dist


def metrics_in_one(loss_sum, correct, count):
    sums = torch.tensor([round(loss_sum * 10**9), correct, count])
    dist.all_reduce(sums)
    loss_sum, correct, count = sums.tolist()
    return loss_sum / 10**9 / count, correct / count
