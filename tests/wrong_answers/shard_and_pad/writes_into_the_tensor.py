# wrong: makes room for the padding in the tensor itself
# told: Which line changes it
# right at: 1
import torch.distributed as dist


def shard_and_pad(tensor):
    ranks, rank = dist.get_world_size(), dist.get_rank()
    count = tensor.numel()
    row = tensor.detach().flatten()
    length = -(-count // ranks)
    piece = row.new_zeros(length)
    own = row[rank * length :][:length]
    piece[: len(own)] = own
    if ranks > 1:
        tensor.detach().zero_()
    return piece
