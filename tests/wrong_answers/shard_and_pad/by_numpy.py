# wrong: takes NumPy for it, which has fewer dtypes
# told: NumPy knows no bfloat16
import numpy
import torch
import torch.distributed as dist


def shard_and_pad(tensor):
    ranks = dist.get_world_size()
    row = tensor.detach().numpy().flatten()
    row = numpy.pad(row, (0, -row.size % ranks))
    return torch.from_numpy(row.reshape(ranks, -1)[dist.get_rank()].copy())
