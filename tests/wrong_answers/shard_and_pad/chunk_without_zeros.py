# wrong: pads nothing, and gives nothing to a rank for which chunk has no piece
# told: Where are the zeros that make all pieces equally long
# right at: 1
import torch.distributed as dist


def shard_and_pad(tensor):
    pieces = tensor.detach().flatten().chunk(dist.get_world_size())
    rank = dist.get_rank()
    return pieces[rank].clone() if rank < len(pieces) else pieces[0][:0].clone()
