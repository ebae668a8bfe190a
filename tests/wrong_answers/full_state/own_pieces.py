# wrong: saves rank 0's rows alone
# told: own rows
# right at: 1
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    if dist.get_rank() != 0:
        return {}
    return {
        name: value.to_local() if isinstance(value, DTensor) else value
        for name, value in model.state_dict().items()
    }
