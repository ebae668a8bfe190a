# wrong: broadcasts rank 0's gradients
# told: This is rank 0's gradient
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.broadcast(parameter.grad, src=0)
