# wrong: cuts between rows of the tensor
# told: These are whole rows of the tensor
import torch.distributed as dist


def shard_and_pad(tensor):
    rows = tensor.detach().reshape(tensor.shape or (1,))
    length = -(-len(rows) // dist.get_world_size())
    return rows[dist.get_rank() * length :][:length].clone()
