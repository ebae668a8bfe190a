# wrong: three numbers as an object
# told: An object collective is two
import torch.distributed as dist


def metrics_in_one(loss_sum, correct, count):
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, (loss_sum, correct, count))
    loss_sum, correct, count = (sum(column) for column in zip(*everyone, strict=True))
    return loss_sum / count, correct / count
