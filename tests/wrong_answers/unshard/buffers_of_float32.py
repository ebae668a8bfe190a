# wrong: takes tensors of the default dtype
# told: Which dtype do the tensors that the collective fills have
import torch
import torch.distributed as dist


def unshard(piece, shape):
    pieces = [torch.empty(len(piece)) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, piece)
    return torch.cat(pieces)[: shape.numel()].reshape(shape)
