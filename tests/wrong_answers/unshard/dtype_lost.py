# wrong: goes through float64
# told: The numbers are right, the dtype is not
import torch
import torch.distributed as dist


def unshard(piece, shape):
    pieces = [torch.empty(len(piece), dtype=torch.float64) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, piece.double())
    return torch.cat(pieces)[: shape.numel()].reshape(shape)
