# wrong: takes memory that nobody has filled for the padding
# told: What follows the elements is not zero
# right at: 1
import torch.distributed as dist


def shard_and_pad(tensor):
    row = tensor.detach().flatten()
    length = -(-len(row) // dist.get_world_size())
    piece = row.new_empty(length)
    own = row[dist.get_rank() * length :][:length]
    piece[: len(own)] = own
    return piece
