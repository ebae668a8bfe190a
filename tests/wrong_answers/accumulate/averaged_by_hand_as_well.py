# wrong: averages by hand what DDP has averaged
# told: and then there was more
import torch.distributed as dist
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    for number, (images, labels) in enumerate(micro_batches, start=1):
        ddp.require_backward_grad_sync = number == len(micro_batches)
        loss = F.cross_entropy(ddp(images), labels) / len(micro_batches)
        loss.backward()
    for parameter in ddp.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    optimizer.step()
