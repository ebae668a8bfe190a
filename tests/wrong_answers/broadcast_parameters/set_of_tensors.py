# wrong: the order of a set of tensors depends on their addresses
# told: shape or dtype on the ranks
# right at: 1
import torch.distributed as dist


def broadcast_parameters(model):
    for tensor in {*model.parameters(), *model.buffers()}:
        dist.broadcast(tensor.detach(), src=0)
