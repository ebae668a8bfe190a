# wrong: AVG is the mean already
# told: divided by the number of ranks once more
# right at: 1
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
            parameter.grad /= dist.get_world_size()
