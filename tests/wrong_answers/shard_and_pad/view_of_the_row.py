# wrong: cuts a view, which keeps the whole row in memory
# told: A slice is a view
# right at: 1
import torch.distributed as dist
import torch.nn.functional as F


def shard_and_pad(tensor):
    ranks = dist.get_world_size()
    row = F.pad(tensor.detach().flatten(), (0, -tensor.numel() % ranks))
    return row.view(ranks, row.numel() // ranks)[dist.get_rank()]
