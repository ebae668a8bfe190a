# wrong: leaves it to chunk, which makes fewer pieces than ranks
# told: 5 elements make three chunks
# right at: 1
import torch
import torch.distributed as dist


def shard_and_pad(tensor):
    row = tensor.detach().flatten()
    length = -(-len(row) // dist.get_world_size())
    own = row.chunk(dist.get_world_size())[dist.get_rank()]
    return torch.cat([own, own.new_zeros(length - len(own))])
