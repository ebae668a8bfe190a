# wrong: makes room for the others' rows and fills in its own
# told: Some rows are zeros
# right at: 1
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    state = {}
    if dist.get_rank() == 0:
        for name, value in model.state_dict().items():
            if isinstance(value, DTensor):
                own = value.to_local()
                value = own.new_zeros(value.shape)
                value[: len(own)] = own
            state[name] = value
    return state
