# wrong: reshapes without zeros
# told: do not divide into that many equal pieces
# right at: 1
import torch.distributed as dist


def shard_and_pad(tensor):
    rows = tensor.detach().flatten().reshape(dist.get_world_size(), -1)
    return rows[dist.get_rank()].clone()
