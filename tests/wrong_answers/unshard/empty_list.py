# wrong: gives all_gather an empty list to fill
# told: How many tensors does the list to be filled hold
import torch
import torch.distributed as dist


def unshard(piece, shape):
    pieces = []
    dist.all_gather(pieces, piece)
    return torch.cat(pieces)[: shape.numel()].reshape(shape)
