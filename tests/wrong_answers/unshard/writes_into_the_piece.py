# wrong: clears the piece, once it is gathered, to save memory
# told: Which line writes into it
import torch
import torch.distributed as dist


def unshard(piece, shape):
    pieces = [torch.empty_like(piece) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, piece)
    piece.zero_()
    return torch.cat(pieces)[: shape.numel()].reshape(shape)
