# wrong: tensors as pickled objects
# told: Are they pickled objects
import torch.distributed as dist


def gather_uneven(tensor):
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, tensor)
    return everyone
