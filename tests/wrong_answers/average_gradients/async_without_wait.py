# wrong: starts the collectives and does not wait for them
# told: still at work when your function returned
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= dist.get_world_size()
            dist.all_reduce(parameter.grad, async_op=True)
