# wrong: makes arrays of NumPy, as for a plot
# told: Which line makes something else of this one
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    state = {}
    for name, value in model.state_dict().items():
        if isinstance(value, DTensor):
            value = value.full_tensor()
        if dist.get_rank() == 0:
            state[name] = value.cpu().float().numpy()
    return state
