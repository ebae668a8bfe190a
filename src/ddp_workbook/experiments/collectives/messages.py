"""Chapter 05: three ways to give rank 0's tensor to all, made of sends and receives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.exercises.collectives.tree_broadcast import tree_broadcast
from manyranks import figures
from manyranks.figures.palette import FAINT, INK
from manyranks.launcher.process_group import set_up
from manyranks.rank_colours import rank_colour
from manyranks.recording.collectives import record_collectives

Round = list[tuple[int, int]]  # pairs (from, to) that are under way at the same time


def star(tensor: Tensor) -> None:
    """Rank 0 sends to every other rank, one after the other."""
    if dist.get_rank() == 0:
        for peer in range(1, dist.get_world_size()):
            dist.send(tensor, dst=peer)
    else:
        dist.recv(tensor, src=0)


def chain(tensor: Tensor) -> None:
    """Every rank passes on to the next one what it has received from the one before."""
    rank = dist.get_rank()
    if rank > 0:
        dist.recv(tensor, src=rank - 1)
    if rank + 1 < dist.get_world_size():
        dist.send(tensor, dst=rank + 1)


WAYS: dict[str, Callable[[Tensor], None]] = {"star": star, "chain": chain, "tree": tree_broadcast}


def rounds_of_ways(*names: str, ranks: int = 8) -> dict[str, list[Round]]:
    """For each way: who really sent to whom, sorted into rounds."""
    rounds_by_way = {}
    for name in names:
        wire = record_collectives(_broadcast, name, ranks=ranks)
        sends = wire[wire["op"] == "send"]
        rounds_by_way[name] = in_rounds(
            [sends[sends["rank"] == rank]["peer"].tolist() for rank in range(ranks)]
        )
    return rounds_by_way


def in_rounds(peers: list[list[int]]) -> list[Round]:
    """Sort each rank's sends into rounds: one at a time, and none before it has the numbers."""
    remaining, has, rounds = [list(receivers) for receivers in peers], [0], []
    while pairs := [(rank, remaining[rank].pop(0)) for rank in has if remaining[rank]]:
        rounds.append(pairs)
        has += [peer for _, peer in pairs]
    return rounds


def from_1_to_2(mine: Tensor) -> None:
    """Rank 1 sends its tensor to rank 2; the other ranks call nothing."""
    if dist.get_rank() == 1:
        dist.send(mine, dst=2)
    elif dist.get_rank() == 2:
        dist.recv(mine, src=1)


def send_and_receive() -> tuple[Tensor, Tensor]:
    """In a rank: what it holds before and after a message from rank 1 to rank 2."""
    mine = torch.arange(1.0, 5.0, device=set_up(bare=False)) * 10 ** dist.get_rank()
    before = mine.clone()
    from_1_to_2(mine)
    return before, mine


def _broadcast(name: str) -> None:
    device = set_up(bare=False)
    WAYS[name](torch.full((4,), float(dist.get_rank()), device=device))


@figures.house_style
def rounds_plot(ways: Mapping[str, Sequence[Round]]) -> figures.Picture:
    """A panel a way: arrows are messages, in the sender's colour; lines are ranks with the data."""
    ranks = 1 + max(to for rounds in ways.values() for pairs in rounds for _, to in pairs)
    figure = figures.Figure((figures.WIDTH, 0.8 + 0.32 * ranks), layout="constrained")
    panels = figure.subplots(1, len(ways), sharey=True, sharex=True, squeeze=False)[0]
    last = max(map(len, ways.values()))
    for axes, (way, rounds) in zip(panels, ways.items(), strict=True):
        axes.hlines(range(ranks), 0, last, color=FAINT, linewidth=1)
        has = {0: 0} | {to: n for n, pairs in enumerate(rounds, 1) for _, to in pairs}
        for rank, since in has.items():
            axes.hlines(rank, since, last, color=rank_colour(0), linewidth=3)
        for number, pairs in enumerate(rounds, 1):
            for sender, receiver in pairs:
                ends = (number - 1, sender), (number, receiver)
                figures.arrow(axes, *ends, sender, arrowstyle="-|>", linewidth=1.6)
        axes.axvline(len(rounds), color=INK, linestyle="dashed", linewidth=1.2)
        axes.set(title=f"{way}: {len(rounds)} rounds", xlabel="rounds")
        axes.xaxis.set_major_locator(figures.MaxNLocator(integer=True))
        figures.label_rows(axes, [f"rank {rank}" for rank in range(ranks)])
    texts = []
    for way, rounds in ways.items():
        round_texts = (
            f"round {number}: " + ", ".join(f"{sender} to {receiver}" for sender, receiver in pairs)
            for number, pairs in enumerate(rounds, 1)
        )
        texts.append(f"The {way} needs {len(rounds)} rounds: {'; '.join(round_texts)}.")
    return figures.Picture(figure, f"Messages between ranks, round by round. {' '.join(texts)}")
