# wrong: leaves the work to a collective
# told: called all_reduce
import torch.distributed as dist


def ring_all_reduce(tensor):
    dist.all_reduce(tensor)
