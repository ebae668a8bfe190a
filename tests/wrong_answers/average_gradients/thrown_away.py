# wrong: reduces a new tensor that nobody keeps
# told: though something was sent
# right at: 1
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad / dist.get_world_size())
