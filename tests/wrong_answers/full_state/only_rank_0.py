# wrong: the other ranks leave before the collectives
# told: Which of your calls needs the other ranks
# right at: 1
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    state = {}
    if dist.get_rank() != 0:
        return state
    for name, value in model.state_dict().items():
        state[name] = value.full_tensor() if isinstance(value, DTensor) else value
    return state
