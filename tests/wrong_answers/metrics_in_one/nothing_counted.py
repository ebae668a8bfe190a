# wrong: a rank without samples divides by its own count
# told: A rank may have no samples
# right at: 1
import torch
import torch.distributed as dist


def metrics_in_one(loss_sum, correct, count):
    shares = torch.tensor([loss_sum / count, correct / count, 1.0], dtype=torch.float64) * count
    dist.all_reduce(shares)
    return tuple((shares[:2] / shares[2]).tolist())
