# wrong: unshards the units and does not shard them again
# told: What shards it again
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


def full_state(model):
    buffers = {name: v for name, v in model.state_dict().items() if not isinstance(v, DTensor)}
    for unit in model.modules():
        if isinstance(unit, FSDPModule):
            unit.unshard()
    state = dict(model.named_parameters(remove_duplicate=False)) | buffers
    return {name: v.detach().clone() for name, v in state.items()} if dist.get_rank() == 0 else {}
