# wrong: gives a frozen parameter a gradient
# told: It needs no zeros
import torch
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
