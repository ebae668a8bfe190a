# wrong: gathers into the same memory in each call
# told: which a later call has changed
# right at: 1
import torch.distributed as dist

BUFFERS = {}


def unshard(piece, shape):
    ranks = dist.get_world_size()
    key = (piece.dtype, len(piece) * ranks)
    row = BUFFERS.setdefault(key, piece.new_empty(len(piece) * ranks))
    dist.all_gather(list(row.view(ranks, len(piece))), piece)
    return row[: shape.numel()].view(shape)
