# wrong: takes the buffers of another rank
# told: The buffers are not rank 0's own
# right at: 1
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    state = {}
    for name, value in model.state_dict().items():
        if isinstance(value, DTensor):
            value = value.full_tensor()
        else:
            dist.broadcast(value := value.clone(), src=dist.get_world_size() - 1)
        if dist.get_rank() == 0:
            state[name] = value
    return state
