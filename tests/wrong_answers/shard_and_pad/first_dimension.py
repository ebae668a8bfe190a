# wrong: cuts rows of the tensor, and flattens afterwards
# told: the elements of whole rows, flattened after the cut
# right at: 1
import torch
import torch.distributed as dist


def shard_and_pad(tensor):
    ranks = dist.get_world_size()
    rows = tensor.detach().reshape(tensor.shape or (1,))
    length = -(-len(rows) // ranks)
    rows = torch.cat([rows, rows.new_zeros(length * ranks - len(rows), *rows.shape[1:])])
    return rows[dist.get_rank() * length :][:length].flatten().clone()
