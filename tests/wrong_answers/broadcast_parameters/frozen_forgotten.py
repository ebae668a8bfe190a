# wrong: passes over what wants no gradient
# told: A frozen parameter is a part of the model
# right at: 1
import torch.distributed as dist


def broadcast_parameters(model):
    for parameter in model.parameters():
        if parameter.requires_grad:
            dist.broadcast(parameter.detach(), src=0)
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)
