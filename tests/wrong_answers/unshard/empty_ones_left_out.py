# wrong: joins the pieces that have something in them, of which there may be none
# told: A tensor without elements has pieces too
import torch
import torch.distributed as dist


def unshard(piece, shape):
    pieces = [torch.empty_like(piece) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, piece)
    return torch.cat([one for one in pieces if len(one)])[: shape.numel()].reshape(shape)
