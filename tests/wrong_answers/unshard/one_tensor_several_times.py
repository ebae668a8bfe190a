# wrong: gathers into one tensor several times
# told: one tensor several times
# right at: 1
import torch
import torch.distributed as dist


def unshard(piece, shape):
    pieces = [torch.empty_like(piece)] * dist.get_world_size()
    dist.all_gather(pieces, piece)
    return torch.cat(pieces)[: shape.numel()].reshape(shape)
