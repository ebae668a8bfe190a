# wrong: asks whether a gradient is true, not whether it is None
# told: neither true nor false
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
