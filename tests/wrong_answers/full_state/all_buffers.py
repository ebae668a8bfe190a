# wrong: saves a buffer that is not persistent
# told: not saved by model.state_dict()
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    state = {}
    for name, value in [*model.state_dict().items(), *model.named_buffers()]:
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        if dist.get_rank() == 0:
            state[name] = whole
    return state
