# wrong: adds up and does not divide
# told: This is the sum over the ranks
# right at: 1
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
