# wrong: the last rank has the result
# told: On which rank is the result
# right at: 1
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    state = {}
    for name, value in model.state_dict().items():
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        if dist.get_rank() == dist.get_world_size() - 1:
            state[name] = whole
    return state
