# wrong: puts the pieces together in the wrong order
# told: In which order must the pieces be joined
# right at: 1
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    state = {}
    for name, value in model.state_dict().items():
        if isinstance(value, DTensor):
            everyone = [None] * dist.get_world_size()
            dist.all_gather_object(everyone, value.to_local())
            value = torch.cat(everyone[::-1])
        if dist.get_rank() == 0:
            state[name] = value
    return state
