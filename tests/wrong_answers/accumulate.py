# %% keeps DDP from sending at all, and averages by hand
# told: no backward on rank 0 has let DDP send
import torch.distributed as dist
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    with ddp.no_sync():
        for images, labels in micro_batches:
            (F.cross_entropy(ddp(images), labels) / len(micro_batches)).backward()
    for parameter in ddp.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    optimizer.step()


# %% averages by hand what DDP has averaged
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


# %% leaves DDP unable to send
# told: require_backward_grad_sync is False
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    ddp.require_backward_grad_sync = False
    for images, labels in micro_batches[:-1]:
        (F.cross_entropy(ddp(images), labels) / len(micro_batches)).backward()
    ddp.require_backward_grad_sync = True
    images, labels = micro_batches[-1]
    (F.cross_entropy(ddp(images), labels) / len(micro_batches)).backward()
    ddp.require_backward_grad_sync = False
    optimizer.step()


# %% no_sync around backward alone: the forward has decided already
# told: a forward was outside of no_sync, and its backward inside
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    for number, (images, labels) in enumerate(micro_batches, start=1):
        loss = F.cross_entropy(ddp(images), labels) / len(micro_batches)
        if number < len(micro_batches):
            with ddp.no_sync():
                loss.backward()
        else:
            loss.backward()
    optimizer.step()


# %% makes the learning rate smaller for good, and divides the losses as well
# told: the learning rate is
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    for number, (images, labels) in enumerate(micro_batches, start=1):
        ddp.require_backward_grad_sync = number == len(micro_batches)
        (F.cross_entropy(ddp(images), labels) / len(micro_batches)).backward()
    optimizer.step()
    for group in optimizer.param_groups:
        group["lr"] *= 0.9
