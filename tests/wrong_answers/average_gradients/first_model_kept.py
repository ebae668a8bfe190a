# wrong: keeps the parameters of the first model
# told: Made first, this call is right
import torch.distributed as dist

KEPT = []


def average_gradients(model):
    if not KEPT:
        KEPT.extend(one for one in model.parameters() if one.grad is not None)
    for parameter in KEPT:
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
