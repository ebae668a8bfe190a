# wrong: gathers on rank 0
# told: After gather, only one rank has the pieces
import torch
import torch.distributed as dist


def unshard(piece, shape):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    pieces = [torch.empty_like(piece) for _ in range(ranks)] if rank == 0 else None
    dist.gather(piece, pieces, dst=0)
    if rank == 0:
        return torch.cat(pieces)[: shape.numel()].reshape(shape)
    return piece.new_zeros(shape)
