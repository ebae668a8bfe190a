# wrong: gathers from four ranks, whatever the size of the world is
# told: needs one tensor for each rank
import torch
import torch.distributed as dist


def metrics_in_one(loss_sum, correct, count):
    own = torch.tensor([loss_sum, correct, count], dtype=torch.float64)
    parts = [torch.empty_like(own) for _ in range(4)]
    dist.all_gather(parts, own)
    loss_sum, correct, count = sum(parts).tolist()
    return loss_sum / count, correct / count
