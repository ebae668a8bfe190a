# wrong: parameters only
# told: Only the buffers are wrong
# right at: 1
import torch.distributed as dist


def broadcast_parameters(model):
    for parameter in model.parameters():
        dist.broadcast(parameter.detach(), src=0)
