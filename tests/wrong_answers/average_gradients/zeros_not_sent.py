# wrong: passes over a gradient that is zero, which is so on one rank only
# told: the first call was right
# told: Call 9 of the default group
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is not None and parameter.grad.any():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
