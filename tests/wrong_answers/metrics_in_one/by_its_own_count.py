# wrong: divides the sums of all by the count of one
# told: by this rank's own count
# right at: 1
import torch
import torch.distributed as dist


def metrics_in_one(loss_sum, correct, count):
    sums = torch.tensor([loss_sum, correct, count], dtype=torch.float64)
    dist.all_reduce(sums)
    everyone_s_loss, everyone_s_correct, _ = sums.tolist()
    return everyone_s_loss / max(count, 1), everyone_s_correct / max(count, 1)
