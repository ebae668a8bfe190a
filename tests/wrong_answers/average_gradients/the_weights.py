# wrong: averages the weights
# told: the parameters or their gradients
# right at: 1
import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= dist.get_world_size()
