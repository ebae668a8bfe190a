# wrong: adds up rows that are zero but for the own piece
# told: A sum over zeros puts every number into its place
import torch.distributed as dist


def unshard(piece, shape):
    whole = piece.new_zeros(len(piece) * dist.get_world_size())
    start = dist.get_rank() * len(piece)
    whole[start : start + len(piece)] = piece
    dist.all_reduce(whole)
    return whole[: shape.numel()].reshape(shape)
