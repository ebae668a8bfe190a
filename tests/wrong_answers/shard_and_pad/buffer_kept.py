# wrong: fills the same memory in each call
# told: which a later call has changed
# right at: 1
import torch.distributed as dist

BUFFERS = {}


def shard_and_pad(tensor):
    row = tensor.detach().flatten()
    length = -(-len(row) // dist.get_world_size())
    key = (tensor.dtype, length)
    piece = BUFFERS.setdefault(key, row.new_zeros(length)).zero_()
    own = row[dist.get_rank() * length :][:length]
    piece[: len(own)] = own
    return piece
