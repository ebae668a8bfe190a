# wrong: gathers the lengths first, which are all equal
# told: The pieces are equally long, and every rank knows the shape
import torch
import torch.distributed as dist


def unshard(piece, shape):
    lengths = [torch.empty(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, torch.tensor([len(piece)]))
    pieces = [piece.new_empty(length.item()) for length in lengths]
    dist.all_gather(pieces, piece)
    return torch.cat(pieces)[: shape.numel()].reshape(shape)
