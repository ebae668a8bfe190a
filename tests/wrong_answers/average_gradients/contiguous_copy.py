# wrong: where contiguous() is a copy, the sum is lost
# told: For some gradients contiguous() makes a copy
# right at: 1
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad.contiguous())
            parameter.grad /= dist.get_world_size()
