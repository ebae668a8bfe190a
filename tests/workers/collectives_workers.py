"""Workers for what notebook 05 says of collectives, and for the tests of its pictures."""

import time
import warnings

import torch
import torch.distributed as dist
from torch import nn

from ddp_workbook.chapters import collectives


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


def comes_late(call: str) -> tuple[float, float]:
    """When this rank entered and left the collective, by a clock that all ranks share.

    Rank 1 comes late: to an all-reduce by a moment, to a broadcast after another rank has left it.
    """
    mine, store = numbers(), dist.distributed_c10d._get_default_store()
    dist.barrier()
    if dist.get_rank() == 1:
        time.sleep(0.1) if call == "all_reduce" else store.wait(["left"])
    entered = time.monotonic()
    {"broadcast": lambda: dist.broadcast(mine, 0), "all_reduce": lambda: dist.all_reduce(mine)}[
        call
    ]()
    left = time.monotonic()
    if dist.get_rank() >= 2:
        store.set("left", "")
    return entered, left


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
