# wrong: stacks the pieces along the wrong dimension
# told: The pieces are interleaved
# right at: 1
import torch
import torch.distributed as dist


def unshard(piece, shape):
    pieces = [torch.empty_like(piece) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, piece)
    return torch.stack(pieces, dim=1).flatten()[: shape.numel()].reshape(shape)
