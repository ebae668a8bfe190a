# wrong: flattens every parameter
# told: Which line flattens the tensor
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    state = {}
    for name, value in model.state_dict().items():
        if isinstance(value, DTensor):
            everyone = [None] * dist.get_world_size()
            dist.all_gather_object(everyone, value.to_local().flatten())
            value = torch.cat(everyone)
        if dist.get_rank() == 0:
            state[name] = value
    return state
