# wrong: break instead of continue
# told: inner.bias.grad was
# told: Does your loop reach all of them
# right at: 1
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is None:
            break
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
