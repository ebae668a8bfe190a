# wrong: gathers padded pieces and leaves the padding in
# told: which line removes the padding
# right at: 1
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_state(model):
    state = {}
    for name, value in model.state_dict().items():
        if isinstance(value, DTensor):
            own, ranks = value.to_local(), dist.get_world_size()
            padded = own.new_zeros(-(-value.shape[0] // ranks), *value.shape[1:])
            padded[: len(own)] = own
            everyone = [torch.empty_like(padded) for _ in range(ranks)]
            dist.all_gather(everyone, padded)
            value = torch.cat(everyone)
        if dist.get_rank() == 0:
            state[name] = value
    return state
