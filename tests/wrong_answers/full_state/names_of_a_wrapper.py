# wrong: puts the name of a wrapper before each name
# told: Under which name would a model look
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    state = {}
    for name, value in model.state_dict().items():
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        if dist.get_rank() == 0:
            state[f"module.{name}"] = whole
    return state
