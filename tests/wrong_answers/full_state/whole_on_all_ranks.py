# wrong: every rank keeps everything until the end
# told: When does it need the last one
# right at: 1
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    state = {
        name: value.full_tensor() if isinstance(value, DTensor) else value
        for name, value in model.state_dict().items()
    }
    return state if dist.get_rank() == 0 else {}
