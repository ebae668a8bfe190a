# wrong: sum and rows travel in the dtype of the loss, in which there are not 257 rows
# told: In which dtype do your sums travel
import torch.distributed as dist


def global_loss(loss, rows):
    totals = loss.detach().new_zeros(2)
    if rows:
        totals[0] = loss.detach() * rows
        totals[1] = rows
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()
