# wrong: view(-1) fails for a gradient that is not contiguous
# told: view needs contiguous memory
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            flat = parameter.grad.view(-1)
            dist.all_reduce(flat)
            flat /= dist.get_world_size()
