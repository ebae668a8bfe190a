"""Give every rank the tensor of one rank in few rounds: a broadcast by hand, along a tree.

Your function is called on all ranks, with a tensor of the same shape and dtype everywhere, and with
the same `src`. When it returns, the tensor itself holds, on every rank, what it held on rank `src`.

- No collective is used: nothing but `send`, `recv`, `isend`, `irecv` and `batch_isend_irecv`.
- Each rank but `src` receives once, the whole tensor. So N ranks need N - 1 messages.
- Messages go in rounds. A rank sends one message a round at most, and none before the round after
  it has received: its first send is in that round, its second in the next one. All is done within
  log2 N rounds, rounded up: 1 for 2 ranks, 2 for 3 and 4, 3 for 5 to 8. A rank alone sends nothing.
- What has been started is waited for. The caller may change the tensor at once.
"""

import math
from collections.abc import Callable

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.exercises import Attempt, NotYet, attempt_on_ranks, in_words
from ddp_workbook.exercises.judging.point_to_point import by_case, call

HINTS = [
    "After the first round two ranks have the numbers. How many can have them after the second "
    "round, and after the third, if nobody who has them is idle?",
    "Number the ranks anew: src is 0, the next one 1, and rank 0 follows the last one. In each "
    "round, those who have the numbers send them as far as there are such ranks.",
    "Begin with a distance of 1 and double it each round, as long as it is below N. Ranks with a "
    "new number below the distance send that far, if a rank is there. Who receives?",
]
SIZES = (1, 2, 3, 4, 7)
KINDS = (((2, 3), torch.float32), ((), torch.int64), ((7,), torch.float64))  # shapes and dtypes


def tree_broadcast(tensor: Tensor, src: int = 0) -> None:
    """Fill `tensor` (any shape) with the numbers that it has on rank `src`, in place."""
    ### BEGIN SOLUTION
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks  # src has place 0
    distance = 1  # as many places have the numbers
    while distance < ranks:
        if place < distance and place + distance < ranks:
            dist.send(tensor, (rank + distance) % ranks)
        elif distance <= place < 2 * distance:
            dist.recv(tensor, (rank - distance) % ranks)
        distance *= 2
    ### END SOLUTION


def numbers(src: int, rank: int) -> Tensor:
    """What `rank` holds before the call: 101, 102, ... on rank 0; shape and dtype change by src."""
    shape, dtype = KINDS[src % len(KINDS)]
    return torch.arange(1, math.prod(shape) + 1, dtype=dtype).reshape(shape) + 100 * (rank + 1)


def in_call(src: int) -> str:
    """The call, and what is to be sent."""
    arguments = f"tensor, src={src}" if src else "tensor"  # 0 is the default
    return f"tree_broadcast({arguments}), where rank {src} had {in_words(numbers(src, src))}"


def from_each(tree_broadcast: Callable, rank: int) -> list[Tensor]:
    """In a rank, for each src: what the tensor holds afterwards."""
    answers = []
    for src in range(dist.get_world_size()):
        tensor = numbers(src, rank)
        answers.append(tensor.detach())  # the caller's memory, whatever becomes of `tensor`
        call(tree_broadcast, in_call(src), tensor, *([src] if src else []))
    return answers


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Judge who sent to whom and when, then the numbers, from every src at each world size."""
    for ranks in sizes:
        answers, wire = attempt_on_ranks(attempt, from_each, each=range(ranks))
        for src, tables in enumerate(by_case(in_call(0), wire)):
            compare_messages(src, tables)
            for rank, values in enumerate(answers):
                compare_numbers(src, rank, values[src])
    return "every rank as src, at 1 to 4 and 7 ranks: N - 1 messages in log2 N rounds, rounded up"


def compare_messages(src: int, tables: list[pd.DataFrame]) -> None:
    """Raise NotYet if a rank gets the tensor never, twice, in pieces, or too late."""
    called, nbytes = in_call(src), numbers(src, src).nbytes
    for rank, rows in enumerate(tables):
        for size in rows["bytes"][rows["bytes"] != nbytes]:
            came = f"a message of {size} bytes on rank {rank}"
            raise NotYet(called, came, f"{nbytes}, the whole tensor", "What does a message hold?")
    sends = [rows["peer"][rows["op"] == "send"].tolist() for rows in tables]
    gets = [sum(peers.count(rank) for peers in sends) for rank in range(len(tables))]
    if problem := wrong_count(gets, src):
        raise NotYet(called, *problem)
    for rank, rows in enumerate(tables):
        if rank != src and rows["op"].iloc[0] == "send":
            came, look = f"rank {rank} sent before it had received", "What does it send then?"
            raise NotYet(called, came, "a rank passes on what it has received", look)
    rounds, idle = in_rounds(sends, src)
    needs = (len(tables) - 1).bit_length()  # log2, rounded up
    if len(rounds) > needs:
        came = "; ".join(", ".join(f"{one} to {other}" for one, other in r) for r in rounds)
        raise NotYet(
            called,
            f"{len(rounds)} rounds: rank {came}",
            f"{needs} rounds for {len(tables)} ranks",
            f"In round {idle[0]}, rank {idle[1]} has the numbers and is idle. Who lacks them?",
        )


def wrong_count(gets: list[int], src: int) -> tuple[str, str, str] | None:
    """What came, what is required, and where to look if rank r gets gets[r] messages."""
    required = f"one message to each rank but rank {src}"
    lacking = [rank for rank, count in enumerate(gets) if not count and rank != src]
    if gets[src] == len(lacking) == max(gets) == 1:
        look = "What is src for, and which lines ask for it?"
        return f"the numbers came from rank {lacking[0]}", f"from rank {src}", look
    for rank, count in enumerate(gets):
        if count > (rank != src):
            came = f"{count} message{'s' * (count > 1)} to rank {rank}{' itself' * (rank == src)}"
            return came, required, "Who sends to a rank that has the numbers already?"
    if lacking:
        look = "Who has the numbers after each round? Write it down for this number of ranks."
        if not any(gets):
            look = "No rank has sent anything. Who has the numbers at the beginning?"
        return f"no message to rank {' and rank '.join(map(str, lacking))}", required, look
    return None


def in_rounds(sends: list[list[int]], src: int) -> tuple[list[list[tuple]], tuple | None]:
    """Who sends to whom in each round; the round and rank where someone is idle first."""
    has, rounds, idle = [src], [], None
    while pairs := [(rank, sends[rank].pop(0)) for rank in has if sends[rank]]:
        rounds.append(pairs)
        rest = [rank for rank in has if rank not in dict(pairs)]
        idle = idle or ((len(rounds), rest[0]) if rest else None)
        has += [peer for _, peer in pairs]
    return rounds, idle


def compare_numbers(src: int, rank: int, value: Tensor) -> None:
    """Raise NotYet if this rank's tensor does not hold the numbers of rank `src`."""
    if not torch.equal(value, right := numbers(src, src)):
        look = "Whose numbers are these, and what has been done with them?"
        if torch.equal(value, numbers(src, rank)):
            look = "Something came to this rank, but not into its tensor. What was filled?"
        came, required = f"{in_words(value)} on rank {rank}", f"{in_words(right)} there"
        raise NotYet(in_call(src), came, required, look)
