# wrong: an object collective is two
# told: An object collective is two
import torch.distributed as dist


def global_loss(loss, rows):
    pairs = [None] * dist.get_world_size()
    dist.all_gather_object(pairs, (loss.item(), rows))
    return sum(mean * n for mean, n in pairs if n) / sum(n for _, n in pairs)
