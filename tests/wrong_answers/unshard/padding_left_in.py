# wrong: reshapes the row with its padding
# told: Does what you reshape have as many elements
# right at: 1
import torch
import torch.distributed as dist


def unshard(piece, shape):
    pieces = [torch.empty_like(piece) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, piece)
    return torch.cat(pieces).reshape(shape)
