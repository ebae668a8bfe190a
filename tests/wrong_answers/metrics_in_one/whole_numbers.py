# wrong: counts exactly, and cuts the losses
# told: The fractions of the losses are gone
import torch
import torch.distributed as dist


def metrics_in_one(loss_sum, correct, count):
    sums = torch.tensor([loss_sum, correct, count], dtype=torch.int64)
    dist.all_reduce(sums)
    loss_sum, correct, count = sums.tolist()
    return loss_sum / count, correct / count
