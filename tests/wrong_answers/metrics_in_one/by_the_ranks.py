# wrong: divides by the number of ranks
# told: These are sums
import torch
import torch.distributed as dist


def metrics_in_one(loss_sum, correct, count):
    sums = torch.tensor([loss_sum, correct, count], dtype=torch.float64)
    dist.all_reduce(sums)
    loss_sum, correct, count = sums.tolist()
    return loss_sum / dist.get_world_size(), correct / dist.get_world_size()
