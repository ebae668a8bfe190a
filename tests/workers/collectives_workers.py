"""Workers for what the pages of chapter 05 say of collectives and messages."""

import time
import warnings

import torch
import torch.distributed as dist
from torch import nn

from ddp_workbook.chapters import collectives
from ddp_workbook.experiments.collectives import every_call, ladder
from ddp_workbook.experiments.collectives.slow_wire import SlowWire


def numbers(count: int = 4) -> torch.Tensor:
    """Join the group; this rank's numbers, in a decimal place of its own."""
    dist.init_process_group("gloo")
    return torch.arange(1.0, count + 1) * 10 ** dist.get_rank()


def in_two_halves(lengths: list[int]) -> list[torch.Tensor]:
    """Vectors of these lengths, and one of another dtype, through the chapter's function."""
    vectors = [numbers(lengths[0])]
    vectors += [torch.arange(1.0, n + 1) * 10 ** dist.get_rank() for n in lengths[1:]]
    vectors.append(vectors[-1].double())
    for vector in vectors:
        collectives.all_reduce_in_two_halves(vector)
    return vectors


def reduced() -> torch.Tensor:
    """What this rank holds after a reduce to rank 0."""
    mine = numbers()
    dist.reduce(mine, dst=0)
    return mine


def uneven_gather() -> None:
    """An all_gather of 2 numbers from rank 0 and 3 from rank 1."""
    dist.init_process_group("gloo")
    dist.all_gather([torch.ones(2), torch.ones(3)], torch.ones(2 + dist.get_rank()))


def average_of_whole_numbers() -> str:
    """What AVG says to int64."""
    try:
        dist.all_reduce(numbers().long(), dist.ReduceOp.AVG)
    except RuntimeError as error:
        return str(error)
    return "not refused"


def small_dtype() -> int:
    """100 + 100 in int8, on two ranks."""
    numbers()
    hundred = torch.tensor([100], dtype=torch.int8)
    dist.all_reduce(hundred)
    return hundred.item()


def both_send_first(count: int) -> None:
    """Two ranks that send before they receive."""
    mine = numbers(count)
    dist.send(mine, 1 - dist.get_rank())
    dist.recv(mine, 1 - dist.get_rank())


def one_receives_first(count: int) -> float:
    """The same, with rank 1 the other way round."""
    mine, arrived = numbers(count), torch.empty(count)
    steps = [lambda: dist.send(mine, 1 - dist.get_rank())]
    steps.append(lambda: dist.recv(arrived, 1 - dist.get_rank()))
    for step in steps if dist.get_rank() == 0 else steps[::-1]:
        step()
    return arrived[0].item()


def other_order(detail: bool) -> tuple[float, float]:
    """Two all-reduces of one shape; rank 1 takes the second tensor first."""
    if detail:
        dist.set_debug_level(dist.DebugLevel.DETAIL)
    a = numbers(1)
    b = 2 * a
    for tensor in (a, b) if dist.get_rank() == 0 else (b, a):
        dist.all_reduce(tensor)
    return a.item(), b.item()


def other_shapes(here: int, there: int) -> list[float]:
    """An all-reduce of `here` numbers on rank 0 and `there` on rank 1."""
    dist.init_process_group("gloo")
    mine = torch.ones([here, there][dist.get_rank()])
    dist.all_reduce(mine)
    return mine.tolist()


def broadcast_in_the_second_pair(source: int) -> str | float:
    """A broadcast from `source` in the group of ranks 2 and 3; what it says or gives there."""
    mine = numbers(1)
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    if dist.get_rank() < 2:
        return ""
    try:
        dist.broadcast(mine, src=source, group=pairs[1])
    except ValueError as error:
        return str(error)
    return mine.item()


def global_rank_of_the_first() -> int:
    """The global rank of rank 0 of the group 1, 2."""
    numbers()
    group = dist.new_group([1, 2])
    return dist.get_global_rank(group, 0) if dist.get_rank() in (1, 2) else -1


def not_in_the_group() -> tuple[list[float], list[str]]:
    """What a rank outside the group holds after the group's all-reduce, and what it is told."""
    mine = numbers(1)
    group = dist.new_group([0])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        dist.all_reduce(mine, group=group)
    return mine.tolist(), [str(one.message) for one in said]


def sharded_step() -> None:
    """Forward and backward of a sharded layer."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    layer = fully_shard(nn.Linear(8, 8), mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    layer(torch.ones(2, 8)).sum().backward()
    dist.barrier()


def in_one_tensor() -> list[torch.Tensor]:
    """all_gather, reduce_scatter and all_to_all with one tensor; a FutureWarning is an error."""
    dist.init_process_group("gloo")
    mine = every_call.numbers(torch.device("cpu"))
    everyone, own, arrived = mine.new_empty(len(mine)), mine.new_empty(1), torch.empty_like(mine)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        every_call.all_gather_single(everyone, mine[:1])
        every_call.reduce_scatter_single(own, mine)
        dist.all_to_all_single(arrived, mine)
    return [everyone, own, arrived]


def on_a_slow_wire(latency: float, bandwidth: float) -> tuple[list[float], list[float]]:
    """Two all-reduces of 40,000 bytes started together: when each came, and a sum of each."""
    dist.init_process_group("gloo")
    wire, begun = SlowWire(latency, bandwidth), time.perf_counter()
    vectors = [torch.full((10_000,), dist.get_rank() + 1.0) for _ in range(2)]
    futures = [wire.all_reduce(vector) for vector in vectors]
    seconds = []
    for future in futures:
        future.wait()
        seconds.append(time.perf_counter() - begun)
    dist.barrier()
    return seconds, [vector[-1].item() for vector in vectors]


def by_each_rung() -> list[list[float]]:
    """Three gradients, summed by each rung that is written by hand."""
    dist.init_process_group("gloo")
    sums = []
    for way in (ladder.one_per_parameter, ladder.one_flat_vector, ladder.in_buckets):
        gradients = [torch.full((2, n), n * (dist.get_rank() + 1.0)) for n in (1, 2, 3)]
        way(gradients, lambda one: dist.all_reduce(one, async_op=True))
        sums.append([gradient.mean().item() for gradient in gradients])
    return sums
