# wrong: takes it that all pieces are equally long
# told: Follow one parameter
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    state = {}
    for name, value in model.state_dict().items():
        if isinstance(value, DTensor):
            own = value.to_local()
            everyone = [None] * dist.get_world_size()
            dist.all_gather_object(everyone, own)
            value = torch.cat([piece[: len(own) // 2 + 1] for piece in everyone])
        if dist.get_rank() == 0:
            state[name] = value
    return state
