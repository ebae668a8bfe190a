# wrong: returns its own piece in the shape, and zeros
# told: Which collective brings them
# right at: 1
import torch.distributed as dist


def unshard(piece, shape):
    whole = piece.new_zeros(len(piece) * dist.get_world_size())
    start = dist.get_rank() * len(piece)
    whole[start : start + len(piece)] = piece
    return whole[: shape.numel()].reshape(shape)
