# wrong: every rank counts the same, whatever its rows
# told: mean of the ranks' means
# right at: 1
import torch.distributed as dist


def global_loss(loss, rows):
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()
