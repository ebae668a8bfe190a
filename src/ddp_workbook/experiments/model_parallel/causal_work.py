"""Who computes which scores of a causal attention, and how long it takes: three token orders."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor

import ddp_workbook
from ddp_workbook.experiments.model_parallel import long_sequences
from ddp_workbook.experiments.model_parallel.long_sequences import (
    Order,
    contiguous,
    ring_attention,
    zigzag,
)
from manyranks import figures
from manyranks.figures.palette import tint
from manyranks.rank_colours import rank_colour, rgb

TOKENS, DRAWN = 1536, 48  # those that are timed, and those of the square
WIDTH = 64  # of the one head
REPEATS = 10
COUNTS, IN_VAIN = 0.55, 0.15  # how much of the rank's colour a score has
ONE_BY_ONE = "dealt one by one"


def one_by_one(rank: int, ranks: int, tokens: int) -> Tensor:
    """Like cards."""
    return torch.arange(rank, tokens, ranks)


ORDERS: dict[str, Order] = {"contiguous": contiguous, "zigzag": zigzag, ONE_BY_ONE: one_by_one}


def round_times(order: str) -> list[float]:
    """In a rank: how many ms its core computes in each round of a ring attention.

    Rounds in which there is nothing to compute are left out. They come last.
    """
    dist.init_process_group("gloo")  # the time of a core says nothing about a GPU
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own = ORDERS[order](rank, ranks, TOKENS)
    query, key, value = (torch.randn(1, len(own), WIDTH) for _ in range(3))
    calls: list[tuple[Tensor, ...]] = []
    attend = long_sequences.attend

    def noted(*arguments: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(arguments)
        return attend(*arguments)

    times = []
    with torch.no_grad():
        with patch.object(long_sequences, "attend", noted):
            ring_attention(query, key, value, ORDERS[order])
        for turn in range(ranks):  # one rank at a time: together they would share the cores
            if turn == rank:
                times = [shortest_ms(*call) for call in calls]
            dist.barrier()
    dist.destroy_process_group()
    return times


def shortest_ms(*arguments: Tensor) -> float:
    """Of some calls of `attend`."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()  # stands still while other programs have the core
        long_sequences.attend(*arguments)
        times.append(1e3 * (time.process_time() - start))
    return min(times)


def starts_of_rounds(times: Sequence[Sequence[float]]) -> list[list[float]]:
    """When each rank begins each round, if messages take no time.

    A rank passes a block on after it has computed with it. So it begins a round when it has done
    the one before, and the previous rank, which then sends the next block, has done so, too.
    """
    starts: list[list[float]] = [[] for _ in times]
    ends = [0.0] * len(times)
    for number in range(max(map(len, times))):
        begins = [max(ends[rank], ends[rank - 1]) for rank in range(len(times))]
        for rank, begin in enumerate(begins):
            starts[rank].append(begin)
            ends[rank] = begin + sum(times[rank][number : number + 1])
    return starts


@figures.house_style
def work_plot(times: Sequence[Sequence[float]], order: str, ranks: int) -> figures.Picture:
    """Whose scores these are, and beside them the rounds of each rank on a clock."""
    figure = figures.Figure((figures.WIDTH, 3.5), layout="constrained")
    square, lanes = figure.subplots(1, 2, width_ratios=(1, 1.25))
    draw_scores(square, order, ranks)
    done = 0.0
    for rank, starts in enumerate(starts_of_rounds(times)):
        colour = rank_colour(rank)
        look = {"facecolor": tint(colour, COUNTS), "edgecolor": colour, "linewidth": 0.8}
        for number, (start, length) in enumerate(zip(starts, times[rank], strict=False)):
            lanes.barh(rank, length, 0.7, left=start, **look)
            lanes.text(start + length / 2, rank, str(number), ha="center", va="center", size=9)
            done = max(done, start + length)
    busy = [sum(rounds) / done for rounds in times]
    for rank, share in enumerate(busy):
        figures.beside(lanes, rank, f"{share:.0%} busy")
    figures.label_rows(lanes, [f"rank {rank}" for rank in range(ranks)])
    lanes.grid(axis="x")
    title = f"all ranks done after {figures.number(done)} ms"
    lanes.set(title=title, xlabel="ms of a core, if messages took no time")
    words = "; ".join(f"rank {rank} {share:.0%}" for rank, share in enumerate(busy))
    return figures.Picture(figure, f"Tokens {order}: {title}. Busy: {words}.")


@figures.house_style
def scores_plot(order: str = "contiguous", ranks: int = 4) -> figures.Picture:
    """The square of all scores alone."""
    figure = figures.Figure((4.2, 3.6), layout="constrained")
    draw_scores(figure.subplots(), order, ranks)
    words = f"Causal attention as a square, a row for each query. {ranks} ranks: tokens {order}."
    return figures.Picture(figure, f"{words} The numbers are those of the ring's rounds.")


def draw_scores(axes: figures.Axes, order: str, ranks: int) -> None:
    """A row for each query, in its rank's colour, and pale where a score is computed in vain."""
    owns = [ORDERS[order](rank, ranks, DRAWN) for rank in range(ranks)]
    square = torch.full((DRAWN, DRAWN, 3), 255, dtype=torch.uint8)
    for (rank, own), block in itertools.product(enumerate(owns), owns):
        visible = own[:, None] >= block
        rows, columns = own[visible.any(1)], block[visible.any(0)]
        for row, column in itertools.product(rows, columns):
            share = COUNTS if row >= column else IN_VAIN
            square[row, column] = torch.tensor(rgb(tint(rank_colour(rank), share)))
    axes.imshow(square.numpy(), interpolation="nearest", extent=(0, DRAWN, DRAWN, 0))
    axes.set(xticks=[], yticks=[], xlabel="keys", ylabel="queries", title=f"tokens {order}")
    if order == ONE_BY_ONE:
        return  # there are too many rounds in it for numbers
    side = DRAWN // (2 * ranks)
    owner = {int(token) // side: rank for rank, own in enumerate(owns) for token in own}
    for row, column in itertools.combinations_with_replacement(range(2 * ranks), 2):
        row, column = column, row  # the rows of later tokens
        number = (owner[row] - owner[column]) % ranks
        lower_left = 0.2 * (row == column)  # of a square that the diagonal halves
        place = (column + 0.5 - lower_left) * side, (row + 0.5 + lower_left) * side
        axes.text(*place, str(number), ha="center", va="center", size=9)


def play_orders() -> ddp_workbook.Play:
    """The same attention with the tokens in another order, and on fewer ranks."""
    return ddp_workbook.play(
        round_times,
        work_plot,
        ranks=ddp_workbook.slider("ranks", (2, 3, 4), 4),
        stills=[{"order": "contiguous", "ranks": 2}, {"order": ONE_BY_ONE}, {"order": "zigzag"}],
        order=ddp_workbook.choice("tokens", ORDERS, "contiguous"),
    )
