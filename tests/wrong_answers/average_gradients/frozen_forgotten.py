# wrong: a parameter without gradient is not passed over
# told: A frozen parameter has no gradient
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
