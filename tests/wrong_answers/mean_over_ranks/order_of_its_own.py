# wrong: each rank begins with its own number, and rounds another way
# told: The last digits of a sum depend on it
# right at: 1, 2
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    size = dist.get_world_size()
    parts = [torch.zeros(1, dtype=torch.float64) for _ in range(size)]
    dist.all_gather(parts, torch.tensor([value], dtype=torch.float64))
    total = 0.0
    for step in range(size):
        total += parts[(dist.get_rank() + step) % size].item()
    return total / size
