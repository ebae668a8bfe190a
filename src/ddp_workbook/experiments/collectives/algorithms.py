"""Chapter 05: an all-reduce by ring, by tree and through rank 0, every message of it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

import ddp_workbook
from manyranks import figures
from manyranks.figures.palette import FAINT, INK, series_colour, tint
from manyranks.launcher.limits import usable_cores
from manyranks.launcher.process_group import set_up
from manyranks.rank_colours import rank_colour
from manyranks.recording.timing import synchronise

RING, TREE, STAR = "ring", "tree", "everyone to rank 0"
# seconds and repeats; the quickest counts: other programs only add to one
MIN_SECONDS, MAX_REPEATS = 0.05, 20
PINGS, LARGE_KIB = 10, 4096  # messages to measure a link with, and KiB to measure its bandwidth
# Another program that takes the core in the middle of a ping makes a small message as slow as a
# large one. What is left is no bandwidth.
MIN_RATIO, MAX_LATENCY = 1.5, 0.01  # large to small message; seconds
DARK = 0  # the rank whose messages are drawn in its full colour
LANE, TOP, LEFT = 0.36, 0.95, 1.15  # inches
ROW, BARS, BAR_ROOM, RIGHTS = 0.27, 1.65, 1.5, (6.6, 8.2)  # inches; of the table of times


class Link(NamedTuple):
    """What carries one message: it takes `latency` seconds, and its bytes over `bandwidth`."""

    latency: float
    bandwidth: float  # bytes a second


CLUSTER = Link(10e-6, 25e9)  # a round number, and the 200 Gbit/s of InfiniBand HDR


class Message(NamedTuple):
    """In one round: `sender`'s piece, which the receiver adds to its own, or writes over it."""

    sender: int
    receiver: int
    piece: int | None  # None is the whole tensor
    adds: bool


class AllReduceTiming(NamedTuple):
    """What one rank saw of an all-reduce, and of a link."""

    sent: list[list[Message]]  # in each round of the chosen algorithm, what it sent
    seconds: dict[str, float]  # of each algorithm
    link: Link | None  # between ranks 0 and 1; None if the machine was too busy to measure it


def play_all_reduce() -> ddp_workbook.Play:
    """An all-reduce made of messages, with controls for the algorithm, the ranks and the size."""
    return ddp_workbook.play(
        all_reduce,
        messages_plot,
        ranks=ddp_workbook.slider("ranks", range(2, 9), 8),
        stills=[
            {"way": TREE},
            {"way": STAR},
            {"kib": 256},
            {"kib": 256, "way": TREE},
            {"ranks": 4},
        ],
        way=ddp_workbook.choice("algorithm", (RING, TREE, STAR)),
        kib=ddp_workbook.slider("tensor, KiB", (1, 16, 256, 1024, 4096), 4096),
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
    sent = [run_round(vector, messages) for messages in WAYS[way](dist.get_world_size())]
    small, large = (
        ping(torch.zeros(count, device=vector.device)) for count in (1, LARGE_KIB * 256)
    )
    return AllReduceTiming(sent, seconds, measured_link(small, large))


def measured_link(small: float, large: float) -> Link | None:
    """From the seconds of a message of 4 bytes and of one of LARGE_KIB; None if they make none."""
    if not 0 < small < MAX_LATENCY or large < MIN_RATIO * small:
        return None
    return Link(small, LARGE_KIB * 1024 / (large - small))


def time_all_reduce(vector: Tensor, way: str) -> float:
    """Seconds of the quickest of a few all-reduces, on the slowest rank."""
    rounds, times = WAYS[way](dist.get_world_size()), [0.0]
    while sum(times) < MIN_SECONDS and len(times) <= MAX_REPEATS:
        dist.barrier()
        start = time.perf_counter()
        for messages in rounds:
            run_round(vector, messages)
        synchronise(vector.device)
        seconds = torch.tensor(time.perf_counter() - start)
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        times.append(seconds.item())  # the same on all ranks, so all of them stop together
    return min(times[1:])


def run_round(vector: Tensor, messages: Sequence[Message]) -> list[Message]:
    """Send and receive what is this rank's; return what it has sent."""
    rank, sent = dist.get_rank(), []
    works, incoming = [], []
    for message in messages:
        part = piece_of(vector, message.piece)
        if message.sender == rank:
            works.append(dist.isend(part, message.receiver))
            sent.append(message)
        if message.receiver == rank:
            buffer = torch.empty_like(part)
            works.append(dist.irecv(buffer, message.sender))
            incoming.append((part, buffer, message.adds))
    for work in works:
        work.wait()
    for part, buffer, adds in incoming:
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
        start = time.perf_counter()
        for sender, receiver in ((0, 1), (1, 0)):
            if dist.get_rank() == sender:
                dist.send(message, receiver)
            elif dist.get_rank() == receiver:
                dist.recv(message, sender)
        synchronise(message.device)
        best = min(best, time.perf_counter() - start)
    return best / 2


def seconds_by_formula(way: str, ranks: int, size: float, link: Link) -> float:
    """Rounds times latency plus the bytes of a message over the bandwidth."""
    rounds = len(WAYS[way](ranks))
    message = size / ranks if way == RING else size
    return rounds * (link.latency + message / link.bandwidth)


# The picture


@figures.house_style
def messages_plot(
    of_ranks: Sequence[AllReduceTiming], ranks: int, way: str, kib: int, **_: object
) -> figures.Picture:
    """A lane a rank, a column a round, an arrow a message; below, the times of all algorithms."""
    timing, rounds = of_ranks[0], len(of_ranks[0].sent)
    columns, note = times_of(timing, ranks, kib), measurement_in_words(timing, ranks)
    most = max(sum(map(len, one.sent)) for one in of_ranks) / (ranks if way == RING else 1)
    title = f"{way}: {rounds} rounds; the busiest rank sends {most:.2f} S"
    bottom = TOP + ranks * LANE
    axes = figures.sheet(figures.WIDTH, bottom + 0.8 + 6 * ROW)
    axes.text(0.1, 0.2, title, weight="bold", va="center")
    _draw_rounds(axes, of_ranks, bottom)
    _draw_times(axes, columns, timing.link, bottom + 0.7)
    axes.text(0.1, bottom + 0.7 + 5.3 * ROW, note, va="center", size=10)
    words = [
        f"{name}: "
        + ", ".join(f"{way} {figures.number(value * 1e3)} ms" for way, value in seconds.items())
        for name, seconds in columns.items()
    ]
    alt = f"{title}. {'. '.join(words)}. {note} {describe_rounds(of_ranks)}"
    return figures.Picture(axes.figure, alt)


def _draw_rounds(axes: figures.Axes, of_ranks: Sequence[AllReduceTiming], bottom: float) -> None:
    """The messages, those of rank 0 dark and with the piece they carry; the halves named."""
    ranks, rounds = len(of_ranks), len(of_ranks[0].sent)
    step = (figures.WIDTH - LEFT - 0.2) / rounds
    figures.label_ranks(axes, ranks, TOP, LANE)
    for rank in range(ranks):
        y = TOP + rank * LANE
        axes.plot([LEFT, LEFT + rounds * step], [y, y], color=FAINT, linewidth=1, zorder=0)
    in_pieces = any(one.piece is not None for timing in of_ranks for one in timing.sent[0])
    halves = ("reduce_scatter", "all_gather") if in_pieces else ("reduce", "broadcast")
    for half, words in enumerate(halves):
        left, right = (LEFT + (half + end) * rounds * step / 2 for end in (0, 1))
        axes.plot([left + 0.04, right - 0.04], [TOP - 0.25] * 2, color=INK, linewidth=1)
        axes.text((left + right) / 2, TOP - 0.38, words, ha="center", va="center", size=10)
    axes.text(0.1, bottom, "round", va="center", size=10)
    mark = {"color": rank_colour(DARK), "va": "center", "size": 10}
    axes.text(0.1, bottom + 0.24, f"rank {DARK} sends", **mark)
    for number in range(rounds):
        left = LEFT + number * step
        axes.text(left + step / 2, bottom, str(number + 1), ha="center", va="center", size=10)
        pale_first = sorted(enumerate(of_ranks), key=lambda one: one[0] == DARK)
        for rank, message in ((rank, one) for rank, of in pale_first for one in of.sent[number]):
            dark = rank == DARK
            if dark:
                words = "all" if message.piece is None else f"p{message.piece}"
                axes.text(left + step / 2, bottom + 0.24, words, ha="center", **mark)
            colour = rank_colour(rank) if dark else tint(rank_colour(rank), 0.4)
            start = left + 0.05 * step, TOP + rank * LANE
            end = left + 0.92 * step, TOP + message.receiver * LANE
            figures.arrow(axes, start, end, color=colour, linewidth=2.2 if dark else 1.2)


def _draw_times(
    axes: figures.Axes, columns: Mapping[str, Mapping[str, float]], link: Link | None, top: float
) -> None:
    """A row an algorithm: its time in a cluster as a bar, and on this machine if there is one."""
    head = {"va": "center", "size": 10, "weight": "bold"}
    axes.text(BARS, top, f"a cluster network, {link_in_words(CLUSTER)}", **head)
    if link:
        words = f"this machine, {link_in_words(link)}"
        axes.text(RIGHTS[-1], top, words, ha="right", **head)
    for (name, seconds), right in zip(columns.items(), (None, *RIGHTS), strict=False):
        x, side = (BARS, "left") if right is None else (right, "right")
        axes.text(x, top + ROW, name.rpartition(", ")[2], ha=side, va="center", size=10)
        quickest, slowest = min(seconds.values()), max(seconds.values())
        for row, (way, value) in enumerate(seconds.items(), 2):
            y, best = top + row * ROW, value == quickest
            words = f"{figures.number(value * 1e3)} ms"
            text = {"va": "center", "size": 10, "weight": "bold" if best else "normal"}
            if right is None:
                axes.text(0.1, y, way, va="center", size=10)
                length, colour = BAR_ROOM * value / slowest, series_colour(0 if best else 1)
                axes.barh(y, length, 0.6 * ROW, left=BARS, color=colour)
                axes.text(BARS + length + 0.06, y, words + best * ", the quickest", **text)
            else:
                axes.text(right, y, words, ha="right", **text)


def times_of(timing: AllReduceTiming, ranks: int, kib: int) -> dict[str, dict[str, float]]:
    """Seconds of each algorithm: in a cluster, and if its link is known, on this machine."""

    def formula(link: Link) -> dict[str, float]:
        return {way: seconds_by_formula(way, ranks, kib * 1024, link) for way in WAYS}

    columns = {"in a cluster, by the formula": formula(CLUSTER)}
    if timing.link:
        columns |= {"here, by the formula": formula(timing.link), "here, measured": timing.seconds}
    return columns


def measurement_in_words(timing: AllReduceTiming, ranks: int) -> str:
    """Which algorithm was the quickest here, and why that is no verdict on a cluster."""
    if not timing.link:
        return "This machine is too busy to measure a message, so only the formula is shown."
    words = (
        f"Measured here, the quickest was: {min(timing.seconds, key=timing.seconds.__getitem__)}."
    )
    if ranks > (cores := usable_cores()):
        words += f" {ranks} ranks share {cores} cores, so the messages of a round take turns."
    return words


def link_in_words(link: Link) -> str:
    latency, rate = (figures.number(value) for value in (link.latency * 1e6, link.bandwidth / 1e9))
    return f"{latency} µs and {rate} GB/s"


def describe_rounds(of_ranks: Sequence[AllReduceTiming]) -> str:
    """Who sends to whom, round by round; equal rounds together."""
    rounds = [
        ", ".join(
            f"{message.sender} to {message.receiver}"
            for messages in of_one_round
            for message in messages
        )
        for of_one_round in zip(*(timing.sent for timing in of_ranks), strict=True)
    ]
    words, number = [], 1
    for messages, same in itertools.groupby(rounds):
        last = number + len(list(same)) - 1
        which = f"Round {number}" if last == number else f"Rounds {number} to {last}"
        words.append(f"{which}: {messages}.")
        number = last + 1
    return " ".join(words)
