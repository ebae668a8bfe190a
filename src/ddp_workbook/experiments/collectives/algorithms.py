"""Chapter 05: an all-reduce by ring, by tree and through rank 0, every message of it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

import ddp_workbook
from manyranks import figures
from manyranks.figures.palette import FAINT
from manyranks.launcher.limits import usable_cores
from manyranks.launcher.process_group import set_up

RING, TREE, STAR = "ring", "tree", "everyone to rank 0"
MIN_SECONDS, MAX_REPEATS = (
    0.05,
    20,
)  # seconds and repeats; the quickest counts: other programs only add to one
PINGS, MIN_KIB = 10, 256  # messages to measure a link with, and KiB to measure its bandwidth
LANE, TOP, LEFT = 0.42, 0.6, 0.75  # inches


class Message(NamedTuple):
    """In one round: `sender`'s piece, which the receiver adds to its own, or writes over it."""

    sender: int
    receiver: int
    piece: int | None  # None is the whole tensor
    adds: bool


class AllReduceTiming(NamedTuple):
    """What one rank saw of an all-reduce, and of a link."""

    receivers: list[list[int]]  # in each round of the chosen algorithm, the ranks that it sent to
    seconds: dict[str, float]  # of each algorithm
    latency: float  # seconds of one message; of rank 0
    bandwidth: float  # bytes a second; of rank 0


def play_all_reduce() -> ddp_workbook.Play:
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
    down = [
        [Message(message.receiver, message.sender, None, adds=False) for message in of]
        for of in up[::-1]
    ]
    return up + down


def star(ranks: int) -> list[list[Message]]:
    """All others send to rank 0, one after the other, which adds up and sends the sum back."""
    peers = range(1, ranks)
    return [
        *([Message(rank, 0, None, adds=True)] for rank in peers),
        *([Message(0, rank, None, adds=False)] for rank in peers),
    ]


WAYS: dict[str, Callable[[int], list[list[Message]]]] = {RING: ring, TREE: tree, STAR: star}


# In a rank


def all_reduce(way: str, kib: int) -> AllReduceTiming:
    """A tensor of `kib` KiB added up by each of the algorithms, timed; the messages of one."""
    vector = torch.ones(kib * 256, device=set_up(bare=False))
    seconds = {name: time_all_reduce(vector, name) for name in WAYS}
    receivers = [run_round(vector, messages) for messages in WAYS[way](dist.get_world_size())]
    size = max(kib, MIN_KIB) * 1024
    small, large = (ping(torch.zeros(n, device=vector.device)) for n in (1, size // 4))
    return AllReduceTiming(receivers, seconds, small, size / max(large - small, 1e-9))


def time_all_reduce(vector: Tensor, way: str) -> float:
    """Seconds of the quickest of a few all-reduces, on the slowest rank."""
    rounds, times = WAYS[way](dist.get_world_size()), [0.0]
    while sum(times) < MIN_SECONDS and len(times) <= MAX_REPEATS:
        dist.barrier()
        start = time.perf_counter()
        for messages in rounds:
            run_round(vector, messages)
        seconds = torch.tensor(time.perf_counter() - start)
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        times.append(seconds.item())  # the same on all ranks, so all of them stop together
    return min(times[1:])


def run_round(vector: Tensor, messages: Sequence[Message]) -> list[int]:
    """Send and receive what is this rank's; return to whom it has sent."""
    rank, receivers = dist.get_rank(), []
    works, incoming = [], []
    for message in messages:
        part = piece_of(vector, message.piece)
        if message.sender == rank:
            works.append(dist.isend(part, message.receiver))
            receivers.append(message.receiver)
        if message.receiver == rank:
            buffer = torch.empty_like(part)
            works.append(dist.irecv(buffer, message.sender))
            incoming.append((part, buffer, message.adds))
    for work in works:
        work.wait()
    for part, buffer, adds in incoming:
        part.copy_(part + buffer if adds else buffer)
    return receivers


def piece_of(vector: Tensor, piece: int | None) -> Tensor:
    """The whole vector, or this one of as many pieces as there are ranks; a view."""
    return vector if piece is None else vector.tensor_split(dist.get_world_size())[piece]


def ping(message: Tensor) -> float:
    """Seconds of one message between ranks 0 and 1: half of the quickest there and back."""
    best = float("inf")
    for _ in range(PINGS):
        dist.barrier()
        start = time.perf_counter()
        for sender, receiver in ((0, 1), (1, 0)):
            if dist.get_rank() == sender:
                dist.send(message, receiver)
            elif dist.get_rank() == receiver:
                dist.recv(message, sender)
        best = min(best, time.perf_counter() - start)
    return best / 2


def seconds_by_formula(way: str, ranks: int, size: float, latency: float, rate: float) -> float:
    """Rounds times latency plus the bytes of a message over the bandwidth."""
    rounds = len(WAYS[way](ranks))
    return rounds * (latency + (size / ranks if way == RING else size) / rate)


# The picture


@figures.house_style
def messages_plot(
    of_ranks: Sequence[AllReduceTiming], ranks: int, way: str, kib: int, **_: object
) -> figures.Picture:
    """A lane a rank, a column a round, an arrow a message; below, the times of all algorithms."""
    rounds = len(of_ranks[0].receivers)
    lines = in_words(of_ranks[0], ranks, way, kib)
    bottom = TOP + ranks * LANE
    axes = figures.sheet(figures.WIDTH, bottom + 0.25 * (len(lines) + 1))
    step = (figures.WIDTH - LEFT - 0.2) / rounds
    figures.label_ranks(axes, ranks, TOP, LANE)
    for rank in range(ranks):
        y = TOP + rank * LANE
        axes.plot([LEFT, figures.WIDTH - 0.2], [y, y], color=FAINT, zorder=0)
    axes.text(LEFT - 0.15, bottom - 0.05, "round", ha="right", size=9)
    for number in range(rounds):
        left = LEFT + number * step
        axes.text(left + step / 2, bottom - 0.05, str(number + 1), ha="center", size=9)
        for rank, timing in enumerate(of_ranks):
            for receiver in timing.receivers[number]:
                start = left + 0.05 * step, TOP + rank * LANE
                end = left + 0.9 * step, TOP + receiver * LANE
                figures.arrow(axes, start, end, rank)
    most = max(sum(map(len, timing.receivers)) for timing in of_ranks) / (
        ranks if way == RING else 1
    )
    title = f"{way}: {rounds} rounds; the busiest rank sends {most:.2f} S"
    axes.text(0.1, 0.2, title, weight="bold", va="center")
    for number, line in enumerate(lines):
        bold = {"weight": "bold"} if line.startswith(way) else {}
        axes.text(0.1, bottom + 0.25 * (number + 1), line, va="center", size=9.5, **bold)
    return figures.Picture(axes.figure, f"{title}. {'. '.join(lines)}. {describe_rounds(of_ranks)}")


def in_words(timing: AllReduceTiming, ranks: int, way: str, kib: int) -> list[str]:
    """The time of each algorithm, measured and by the formula; and what the formula knows."""
    number, latency, rate = figures.number, timing.latency, timing.bandwidth
    lines = []
    for name, seconds in timing.seconds.items():
        formula = seconds_by_formula(name, ranks, kib * 1024, latency, rate)
        times = f"{number(formula * 1e3)} ms by the formula, {number(seconds * 1e3)} ms measured"
        lines.append(f"{name}: {times}")
    return [
        *lines,
        f"A tensor of {kib} KiB, {ranks} ranks on {usable_cores()} cores. One message between "
        f"ranks 0 and 1: latency {number(latency * 1e3)} ms, {number(rate / 1e9)} GB/s",
    ]


def describe_rounds(of_ranks: Sequence[AllReduceTiming]) -> str:
    """Who sends to whom, round by round; equal rounds together."""
    rounds = [
        ", ".join(
            f"{rank} to {receiver}"
            for rank, receivers in enumerate(receivers_of_ranks)
            for receiver in receivers
        )
        for receivers_of_ranks in zip(*(timing.receivers for timing in of_ranks), strict=True)
    ]
    words, number = [], 1
    for messages, same in itertools.groupby(rounds):
        last = number + len(list(same)) - 1
        which = f"Round {number}" if last == number else f"Rounds {number} to {last}"
        words.append(f"{which}: {messages}.")
        number = last + 1
    return " ".join(words)
