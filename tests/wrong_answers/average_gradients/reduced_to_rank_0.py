# wrong: reduces to rank 0, where alone the mean is made
# told: one rank alone has the result
# right at: 1
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.reduce(parameter.grad, 0)
            if dist.get_rank() == 0:
                parameter.grad /= dist.get_world_size()
