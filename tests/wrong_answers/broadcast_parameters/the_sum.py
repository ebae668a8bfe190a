# wrong: adds up the models
# told: This is the sum over the ranks
# right at: 1
import torch.distributed as dist


def broadcast_parameters(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)
