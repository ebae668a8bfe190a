# wrong: every rank counts the same, whatever its count
# told: the mean of the ranks' means
# right at: 1
import torch
import torch.distributed as dist


def metrics_in_one(loss_sum, correct, count):
    means = torch.tensor([loss_sum, correct], dtype=torch.float64) / max(count, 1)
    dist.all_reduce(means)
    return tuple((means / dist.get_world_size()).tolist())
