"""The first version of FSDP, for anyone who meets it in an older program."""

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from ddp_workbook.chapters.digits import Block, DigitsTransformer


def shard_by_block(model: DigitsTransformer, device: torch.device) -> nn.Module:
    """Shard each block by itself, then the rest. Make the optimizer of the returned wrapper."""
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=device,  # without it, FSDP1 looks for an accelerator
        use_orig_params=True,  # else each unit is one long vector, without names
    )
