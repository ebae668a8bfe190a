# wrong: pieces as pickled objects
# told: An object collective is two
import torch
import torch.distributed as dist


def unshard(piece, shape):
    pieces = [None] * dist.get_world_size()
    dist.all_gather_object(pieces, piece)
    return torch.cat(pieces)[: shape.numel()].reshape(shape)
