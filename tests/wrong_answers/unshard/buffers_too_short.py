# wrong: rounds the length of the pieces down
# told: Which shape must a tensor have to take the piece
# right at: 1
import torch
import torch.distributed as dist


def unshard(piece, shape):
    ranks = dist.get_world_size()
    pieces = [piece.new_empty(shape.numel() // ranks) for _ in range(ranks)]
    dist.all_gather(pieces, piece)
    return torch.cat(pieces)[: shape.numel()].reshape(shape)
