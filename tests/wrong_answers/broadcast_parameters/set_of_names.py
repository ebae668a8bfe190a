# wrong: the order of a set of names is not the same in all processes
# told: in the order of a set of names
import torch.distributed as dist


def broadcast_parameters(model):
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name in set(tensors):
        dist.broadcast(tensors[name].detach(), src=0)
