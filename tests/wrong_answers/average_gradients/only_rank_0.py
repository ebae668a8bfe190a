# wrong: rank 0 alone comes to the collective
# told: Call 1 of the default group
# told: rank 1
# told: has returned without it
# right at: 1
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is not None and dist.get_rank() == 0:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
