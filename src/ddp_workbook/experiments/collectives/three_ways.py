"""Chapter 05: an all-reduce by ring, by tree and through rank 0, every message of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

import ddp_workbook
from ddp_workbook import figures
from ddp_workbook.figures.palette import FAINT
from ddp_workbook.launcher.process_group import set_up

if TYPE_CHECKING:
    from ddp_workbook.notebook.play import Play

RING, TREE, STAR = "ring", "tree", "everyone to rank 0"
ENOUGH, MOST = 0.1, 30  # seconds and repeats; the quickest counts: other programs only add to one
PINGS, LEAST = 10, 256  # messages to measure a link with, and KiB to measure its bandwidth
LANE, TOP, LEFT = 0.42, 0.75, 0.75  # inches
THINNEST, THICKEST = 1.2, 4.5  # points: of an arrow that carries nothing, and the whole tensor


class Message(NamedTuple):
    """In one round: `sender`'s piece, which the receiver adds to its own, or writes over it."""

    sender: int
    receiver: int
    piece: int | None  # None is the whole tensor
    adds: bool


class Measured(NamedTuple):
    """What one rank saw of an all-reduce, and of a link."""

    sent: list[list[int]]  # in each round, the ranks that it sent to
    seconds: float
    latency: float  # seconds of one message; of rank 0
    bandwidth: float  # bytes a second; of rank 0


def play_all_reduce() -> Play:
    """An all-reduce made of messages, with controls for the algorithm, the ranks and the size."""
    return ddp_workbook.play(
        all_reduce,
        messages_plot,
        ranks=ddp_workbook.slider("ranks", range(2, 9), 4),
        stills=[
            {"way": TREE},
            {"way": STAR},
            {"ranks": 8},
            {"ranks": 8, "way": TREE},
            {"ranks": 8, "way": STAR},
        ],
        way=ddp_workbook.choice("algorithm", (RING, TREE, STAR)),
        kib=ddp_workbook.slider("tensor, KiB", (1, 16, 256, 1024, 4096), 256),
    )


# The three algorithms: rounds of messages


def ring(ranks: int) -> list[list[Message]]:
    """N - 1 rounds that add, N - 1 that pass on; each rank sends a piece to the next one."""
    return [
        [
            Message(rank, (rank + 1) % ranks, (rank + half - number) % ranks, adds=not half)
            for rank in range(ranks)
        ]
        for half in (0, 1)
        for number in range(ranks - 1)
    ]


def tree(ranks: int) -> list[list[Message]]:
    """Pairs add up, then pairs of pairs; the sum goes back the same way."""
    steps = [2**level for level in range((ranks - 1).bit_length())]
    up = [
        [Message(rank + step, rank, None, adds=True) for rank in range(0, ranks - step, 2 * step)]
        for step in steps
    ]
    down = [[Message(one.receiver, one.sender, None, adds=False) for one in of] for of in up[::-1]]
    return up + down


def star(ranks: int) -> list[list[Message]]:
    """All others send to rank 0, one after the other, which adds up and sends the sum back."""
    others = range(1, ranks)
    return [
        *([Message(rank, 0, None, adds=True)] for rank in others),
        *([Message(0, rank, None, adds=False)] for rank in others),
    ]


WAYS: dict[str, Callable[[int], list[list[Message]]]] = {RING: ring, TREE: tree, STAR: star}


# In a rank


def all_reduce_by(way: str, numbers: int) -> list[float]:
    """Add up a tensor of this many float32 with the algorithm's messages; both ends."""
    device = set_up(bare=False)
    vector = torch.full((numbers,), dist.get_rank() + 1.0, device=device)
    for messages in WAYS[way](dist.get_world_size()):
        one_round(vector, messages)
    return [vector[0].item(), vector[-1].item()]


def all_reduce(way: str, kib: int) -> Measured:
    """The same for a tensor of `kib` KiB, timed; the quickest of a few times."""
    device = set_up(bare=False)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    rounds, times = WAYS[way](ranks), [0.0]
    while sum(times) < ENOUGH and len(times) <= MOST:
        vector = torch.full((kib * 256,), float(rank + 1), device=device)
        dist.barrier()
        begun = time.perf_counter()
        sent = [one_round(vector, messages) for messages in rounds]
        spent = torch.tensor(time.perf_counter() - begun)
        dist.all_reduce(spent, op=dist.ReduceOp.MAX)
        times.append(spent.item())  # the same on all ranks, so all of them stop together
    size = max(kib, LEAST) * 1024
    small, large = (ping(torch.zeros(n, device=device)) for n in (1, size // 4))
    bandwidth = size / max(large - small, 1e-9)
    return Measured(sent, min(times[1:]), small, bandwidth)


def one_round(vector: Tensor, messages: Sequence[Message]) -> list[int]:
    """Send and receive what is this rank's; return to whom it has sent."""
    rank, sent = dist.get_rank(), []
    works, arrived = [], []
    for message in messages:
        part = piece_of(vector, message.piece)
        if message.sender == rank:
            works.append(dist.isend(part, message.receiver))
            sent.append(message.receiver)
        if message.receiver == rank:
            buffer = torch.empty_like(part)
            works.append(dist.irecv(buffer, message.sender))
            arrived.append((part, buffer, message.adds))
    for work in works:
        work.wait()
    for part, buffer, adds in arrived:
        part.copy_(part + buffer if adds else buffer)
    return sent


def piece_of(vector: Tensor, piece: int | None) -> Tensor:
    """The whole vector, or this one of as many pieces as there are ranks; a view."""
    return vector if piece is None else vector.tensor_split(dist.get_world_size())[piece]


def ping(message: Tensor) -> float:
    """Seconds of one message between ranks 0 and 1: half of the quickest there and back."""
    best = float("inf")
    for _ in range(PINGS):
        dist.barrier()
        begun = time.perf_counter()
        for sender, receiver in ((0, 1), (1, 0)):
            if dist.get_rank() == sender:
                dist.send(message, receiver)
            elif dist.get_rank() == receiver:
                dist.recv(message, sender)
        best = min(best, time.perf_counter() - begun)
    return best / 2


def seconds_by_formula(way: str, ranks: int, size: float, latency: float, rate: float) -> float:
    """Rounds times latency plus the bytes of a message over the bandwidth."""
    rounds = len(WAYS[way](ranks))
    return rounds * (latency + (size / ranks if way == RING else size) / rate)


# The picture


@figures.drawn
def messages_plot(
    of_ranks: Sequence[Measured], ranks: int, way: str, kib: int, **_: object
) -> figures.Picture:
    """A lane a rank, a column a round, an arrow a message; the time, and that of the formula."""
    rounds = len(of_ranks[0].sent)
    axes = figures.sheet(figures.WIDTH, TOP + ranks * LANE + 0.35)
    step = (figures.WIDTH - LEFT - 0.2) / rounds
    figures.label_ranks(axes, ranks, TOP, LANE)
    share = 1 / ranks if way == RING else 1.0
    thick = THINNEST + share * (THICKEST - THINNEST)
    for rank in range(ranks):
        y = TOP + rank * LANE
        axes.plot([LEFT, figures.WIDTH - 0.2], [y, y], color=FAINT, zorder=0)
    for number in range(rounds):
        left = LEFT + number * step
        axes.text(left + step / 2, TOP + ranks * LANE - 0.05, str(number + 1), ha="center", size=9)
        for rank, measured in enumerate(of_ranks):
            for other in measured.sent[number]:
                ends = (
                    (left + 0.05 * step, TOP + rank * LANE),
                    (left + 0.9 * step, TOP + other * LANE),
                )
                figures.arrow(axes, *ends, rank, linewidth=thick)
    axes.text(LEFT - 0.15, TOP + ranks * LANE - 0.05, "round", ha="right", size=9)
    words = in_words(of_ranks, way, kib)
    axes.text(0.05, 0.25, words, weight="bold", va="center")
    return figures.Picture(axes.figure, f"{words}. {listed(of_ranks)}")


def in_words(of_ranks: Sequence[Measured], way: str, kib: int) -> str:
    """Rounds, what the busiest rank sends, the time of all, and that of the formula."""
    first, ranks = of_ranks[0], len(of_ranks)
    most = max(sum(map(len, one.sent)) for one in of_ranks) / (ranks if way == RING else 1)
    formula = seconds_by_formula(way, ranks, kib * 1024, first.latency, first.bandwidth)
    return (
        f"{way}: {len(first.sent)} rounds; the busiest rank sends {most:.2f} S\n"
        f"measured {figures.number(first.seconds * 1e3)} ms, "
        f"by the formula {figures.number(formula * 1e3)} ms"
    )


def listed(of_ranks: Sequence[Measured]) -> str:
    """Who sends to whom, round by round."""
    return " ".join(
        f"Round {number}: "
        + ", ".join(
            f"{rank} to {other}"
            for rank, one in enumerate(of_ranks)
            for other in one.sent[number - 1]
        )
        + "."
        for number in range(1, len(of_ranks[0].sent) + 1)
    )
