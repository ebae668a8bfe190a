"""The gradient of a batch of five rows on two ranks, made in two ways, and how far off each is."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters import single_process
from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.digits import DigitsDataset, DigitsMLP
from ddp_workbook.launcher.launch import launch

ROWS = 5


def off_by() -> dict[str, float]:
    """For the mean of the ranks' means, and for the chapter's way: the error, as a part of 1."""
    right = gradient_of_one_process()
    ways = {"mean of the ranks' means": False, "as in the chapter": True}
    found = {way: launch(gradient_of_ranks, flag, ranks=2)[0] for way, flag in ways.items()}
    return {way: ((one - right).norm() / right.norm()).item() for way, one in found.items()}


def gradient_of_one_process() -> Tensor:
    """The gradient of the mean loss over all five rows, flat."""
    torch.manual_seed(0)
    model, digits = DigitsMLP(), DigitsDataset()
    single_process.forward_and_backward(model, digits.images[:ROWS], digits.labels[:ROWS])
    return flat(model)


def gradient_of_ranks(as_the_chapter: bool) -> Tensor:
    """What DDP makes of the same rows: 3 of them on rank 0, 2 on rank 1."""
    device, digits = setup(), DigitsDataset()
    mine = slice(dist.get_rank(), ROWS, dist.get_world_size())
    images, labels = digits.images[mine].to(device), digits.labels[mine].to(device)
    torch.manual_seed(0)
    ddp = DistributedDataParallel(DigitsMLP().to(device))
    if as_the_chapter:
        forward_and_backward(ddp, images, labels, rows=ROWS)
    else:
        F.cross_entropy(ddp(images), labels).backward()  # the mean over this rank's rows
    found = flat(ddp.module).cpu()
    del ddp
    cleanup()
    return found


def flat(model: torch.nn.Module) -> Tensor:
    """All gradients of a model, one behind the other."""
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
