# wrong: parameters of the model itself are left out
# told: matrix.grad was
# told: Does your loop reach all of them
# right at: 1
import torch.distributed as dist


def average_gradients(model):
    for layer in model.children():
        for parameter in layer.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
