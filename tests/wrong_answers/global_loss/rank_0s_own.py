# wrong: rank 0 tells its own loss
# told: This is rank 0's loss, on every rank
# right at: 1
import torch.distributed as dist


def global_loss(loss, rows):
    mine = loss.detach().clone()
    dist.broadcast(mine, src=0)
    return mine.item()
