"""What train.py has of its own with fully_shard; `new.py` puts it there."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from ddp_workbook.program.task import Block


def shard(model: nn.Module, device: torch.device, bf16: bool = False) -> nn.Module:
    """Each block becomes a unit, and what is outside of them one more; moves it to the device."""
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    compute = torch.bfloat16 if bf16 else None
    policy = MixedPrecisionPolicy(compute, reduce_dtype=torch.float32)
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    if not blocks:  # the whole model would be one unit, gathered at once
        raise SystemExit("task.py: the model has no layer of class Block")
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    policy = MixedPrecisionPolicy(compute, torch.float32, output_dtype=torch.float32)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model
