# wrong: puts new Parameters in the place of those that the optimizer knows
# told: is another Parameter than before
import torch.distributed as dist
from torch import nn


def broadcast_parameters(model):
    for module in model.modules():
        for name, old in list(module.named_parameters(recurse=False)):
            new = old.detach().clone()
            dist.broadcast(new, src=0)
            setattr(module, name, nn.Parameter(new, requires_grad=old.requires_grad))
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)
