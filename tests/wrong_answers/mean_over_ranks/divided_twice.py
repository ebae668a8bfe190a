# wrong: AVG is the mean already
# told: divided by the number of ranks once more
# right at: 1
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    total = torch.tensor(value)
    dist.all_reduce(total, op=dist.ReduceOp.AVG)
    return total.item() / dist.get_world_size()
