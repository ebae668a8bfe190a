# wrong: a frozen parameter wants a gradient afterwards
# told: has requires_grad=True
import torch.distributed as dist


def broadcast_parameters(model):
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        dist.broadcast(parameter, src=0)
        parameter.requires_grad_(True)
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)
