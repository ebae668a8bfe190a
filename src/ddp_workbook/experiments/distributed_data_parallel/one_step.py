"""One step of all ranks, for the first picture: rows, buckets, own gradients and their mean."""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.digits import DigitsDataset, DigitsMLP

ROWS, DEPTH = 8, 3
CAP = 1 / 64  # MiB: three buckets for this small model, where DDP's own limit makes one


class Bucket(NamedTuple):
    """One bucket of a rank: whose gradients it holds, and the first number in it."""

    layers: list[str]  # in the order in which their gradients become ready
    size: int  # bytes
    own: float  # before the all-reduce: from this rank's rows
    mean: float  # after it


class Step(NamedTuple):
    """What one rank did in the step."""

    rows: list[int]  # which rows of the batch
    images: list[list[float]]  # [rows, 64], 0 to 1
    labels: list[int]
    buckets: list[Bucket]  # in the order in which they are sent


def step_of_this_rank() -> Step:
    """The second of two steps on the first rows of the digits.

    In its first step DDP has a single bucket: it does not know the order of the gradients yet.
    """
    device, digits = setup(), DigitsDataset()
    rows = list(range(ROWS))[dist.get_rank() :: dist.get_world_size()]
    images, labels = digits.images[rows].to(device), digits.labels[rows].to(device)
    torch.manual_seed(0)
    model = DigitsMLP(depth=DEPTH).to(device)
    names = {parameter: name for name, parameter in model.named_parameters()}
    ddp = DistributedDataParallel(model, bucket_cap_mb=CAP)
    seen: list[Bucket] = []

    def average(_: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """What DDP does without a hook, and a note of it."""
        buffer = bucket.buffer()
        own = buffer[0].item()
        dist.all_reduce(buffer.div_(dist.get_world_size()))
        inside = [names[p].rpartition(".")[0] for p in bucket.parameters()]
        seen.append(Bucket(list(dict.fromkeys(inside)), buffer.nbytes, own, buffer[0].item()))
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(buffer)
        return done

    ddp.register_comm_hook(None, average)
    for _ in range(2):
        ddp.zero_grad()
        seen.clear()
        forward_and_backward(ddp, images, labels, ROWS)
    cleanup()
    return Step(rows, images.tolist(), labels.tolist(), seen)
