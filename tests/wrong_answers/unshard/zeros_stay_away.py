# wrong: a rank whose piece is zeros does not come to the all-gather
# told: returned without it
# right at: 1
import torch
import torch.distributed as dist


def unshard(piece, shape):
    if not piece.any():
        return piece.new_zeros(shape)
    pieces = [torch.empty_like(piece) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, piece)
    return torch.cat(pieces)[: shape.numel()].reshape(shape)
