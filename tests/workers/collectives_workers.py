"""Workers for what the pages of chapter 05 say of collectives and messages."""

import warnings

import torch
import torch.distributed as dist

from ddp_workbook.chapters import collectives, make_it_fast
from ddp_workbook.experiments.collectives import algorithms, every_call


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


def sums_of_gloo() -> tuple[list[float], str, int]:
    """What a rank holds after a reduce to 0; what AVG says to int64; a sum of 100 in int8."""
    mine, hundred, message = numbers(), torch.tensor([100], dtype=torch.int8), "not refused"
    dist.reduce(mine, dst=0)
    dist.all_reduce(hundred)
    try:
        dist.all_reduce(hundred.long(), dist.ReduceOp.AVG)
    except RuntimeError as error:
        message = str(error)
    return mine.tolist(), message, hundred.item()


def uneven_gather() -> None:
    """An all_gather of 2 numbers from rank 0 and 3 from rank 1."""
    dist.init_process_group("gloo")
    dist.all_gather([torch.ones(2), torch.ones(3)], torch.ones(2 + dist.get_rank()))


def both_send_first(count: int) -> None:
    """Two ranks that send before they receive."""
    mine = numbers(count)
    dist.send(mine, 1 - dist.get_rank())
    dist.recv(mine, 1 - dist.get_rank())


def one_receives_first(count: int) -> float:
    """The same, with rank 1 the other way round."""
    mine, buffer = numbers(count), torch.empty(count)
    steps = [lambda: dist.send(mine, 1 - dist.get_rank())]
    steps.append(lambda: dist.recv(buffer, 1 - dist.get_rank()))
    for step in steps if dist.get_rank() == 0 else steps[::-1]:
        step()
    return buffer[0].item()


def other_shapes(here: int, there: int) -> list[float]:
    """An all-reduce of `here` numbers on rank 0 and `there` on rank 1."""
    dist.init_process_group("gloo")
    mine = torch.ones([here, there][dist.get_rank()])
    dist.all_reduce(mine)
    return mine.tolist()


def in_the_second_pair() -> tuple[str, float, int]:
    """On ranks 2 and 3: a broadcast from 0 is refused, from 2 it arrives; the first rank's name."""
    mine, message = numbers(1), "not refused"
    _, pair = dist.new_group([0, 1]), dist.new_group([2, 3])
    if dist.get_rank() < 2:
        return "", 0.0, 2
    try:
        dist.broadcast(mine, src=0, group=pair)
    except ValueError as error:
        message = str(error)
    dist.broadcast(mine, src=2, group=pair)
    return message, mine.item(), dist.get_global_rank(pair, 0)


def in_one_tensor() -> list[torch.Tensor]:
    """all_gather, reduce_scatter and all_to_all with one tensor; a FutureWarning is an error."""
    dist.init_process_group("gloo")
    mine = every_call.numbers(torch.device("cpu"))
    everyone, own, buffer = mine.new_empty(len(mine)), mine.new_empty(1), torch.empty_like(mine)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        every_call.all_gather_single(everyone, mine[:1])
        every_call.reduce_scatter_single(own, mine)
        dist.all_to_all_single(buffer, mine)
    return [everyone, own, buffer]


def by_each_rung() -> list[list[float]]:
    """Three gradients, summed by each rung that is written by hand."""
    dist.init_process_group("gloo")
    sums = []
    for way in (make_it_fast.one_by_one, make_it_fast.flat, make_it_fast.in_buckets):
        gradients = [torch.full((2, n), n * (dist.get_rank() + 1.0)) for n in (1, 2, 3)]
        way(gradients)
        sums.append([gradient.mean().item() for gradient in gradients])
    return sums


def all_reduce_by(way: str, count: int) -> list[float]:
    """Add up a tensor of this many float32 with the messages of an algorithm; both ends."""
    dist.init_process_group("gloo")
    vector = torch.full((count,), dist.get_rank() + 1.0)
    for messages in algorithms.WAYS[way](dist.get_world_size()):
        algorithms.run_round(vector, messages)
    return [vector[0].item(), vector[-1].item()]
