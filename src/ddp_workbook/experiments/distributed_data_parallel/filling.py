"""How buckets fill during one real backward: when each gradient is ready, when a bucket travels."""

import time
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.digits import DigitsDataset, DigitsMLP

WIDTH, DEPTH, ROWS = 256, 8, 1024
CAP = 0.5  # MiB
STEPS = 5  # the first has one bucket, the second makes the real ones; the quickest later one counts


class Ready(NamedTuple):
    """A gradient that backward has finished."""

    name: str
    size: int  # bytes
    at: float  # milliseconds since backward began


class Sent(NamedTuple):
    """A bucket and its all-reduce."""

    names: list[str]
    size: int  # bytes
    start: float  # milliseconds since backward began
    end: float


class Backward(NamedTuple):
    """One backward of one rank: its gradients and its buckets, in order of time."""

    ready: list[Ready]
    sent: list[Sent]
    end: float  # milliseconds: backward has returned


def backward_of_this_rank() -> Backward:
    """The quickest backward, after two, of a model with nine layers.

    The buckets hold at most half a MiB and the gradient that fills them. A hook notes when a
    gradient is ready; another takes the place of DDP's all-reduce, and does the same.
    """
    device, digits = setup(), DigitsDataset()
    mine = slice(dist.get_rank(), ROWS, dist.get_world_size())
    images = digits.images[mine].to(device)
    torch.manual_seed(0)
    ddp = DistributedDataParallel(DigitsMLP(WIDTH, DEPTH).to(device), bucket_cap_mb=CAP)
    names = {parameter: name for name, parameter in ddp.module.named_parameters()}
    ready: list[Ready] = []
    sent: list[Sent] = []
    began = 0.0

    def now() -> float:
        return 1e3 * (time.perf_counter() - began)

    def average(_: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        start, buffer = now(), bucket.buffer().div_(dist.get_world_size())
        inside = [names[parameter] for parameter in bucket.parameters()]

        def done(future: torch.futures.Future) -> Tensor:
            sent.append(Sent(inside, buffer.nbytes, start, now()))
            return future.value()[0]

        return dist.all_reduce(buffer, async_op=True).get_future().then(done)

    for parameter, name in names.items():
        parameter.register_post_accumulate_grad_hook(
            lambda p, name=name: ready.append(Ready(name, p.grad.nbytes, now()))
        )
    ddp.register_comm_hook(None, average)
    steps = []
    for _ in range(STEPS):
        ddp.zero_grad()
        loss = ddp(images).logsumexp(dim=1).mean()  # any number will do
        dist.barrier()  # else one rank would wait for the other's forward
        ready, sent = [], []
        began = time.perf_counter()
        loss.backward()
        steps.append(Backward(ready, sorted(sent, key=lambda one: one.start), now()))
    cleanup()
    return min(steps[2:], key=lambda one: one.end)
