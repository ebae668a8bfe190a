# wrong: parameters only
# told: is a buffer, no parameter
# right at: 1
import torch.distributed as dist


def broadcast_parameters(model):
    for parameter in model.parameters():
        dist.broadcast(parameter.detach(), src=0)
