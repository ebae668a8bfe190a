# wrong: a rank with an overflow stays away
# told: the first call was right
# told: Call 6 of the default group
# right at: 1
import torch
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is not None and torch.isfinite(parameter.grad).all():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
