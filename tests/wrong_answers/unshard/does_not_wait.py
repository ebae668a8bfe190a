# wrong: starts the all-gather and does not wait for it
# told: still at work when your function returned
import torch
import torch.distributed as dist


def unshard(piece, shape):
    pieces = [torch.empty_like(piece) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, piece, async_op=True)
    return torch.cat(pieces)[: shape.numel()].reshape(shape)
