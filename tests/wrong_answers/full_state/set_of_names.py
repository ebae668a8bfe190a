# wrong: goes through a set of names, whose order is another one in each process
# told: do all ranks go through the entries in the same order
# right at: 1
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    state, entries = {}, model.state_dict()
    for name in set(entries):
        value = entries[name]
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        if dist.get_rank() == 0:
            state[name] = whole.cpu()
    return state
