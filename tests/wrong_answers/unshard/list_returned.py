# wrong: returns what the collective fills
# told: This is a list; a tensor is asked for
import torch
import torch.distributed as dist


def unshard(piece, shape):
    pieces = [torch.empty_like(piece) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, piece)
    return pieces
