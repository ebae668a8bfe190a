"""Chapter 05: the ring all-reduce, round by round, and what it sends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from unittest.mock import patch

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.exercises.collectives.ring_all_reduce import ring_all_reduce
from ddp_workbook.experiments.collectives.before_and_after import (
    HEAD,
    HEIGHT,
    LEFT,
    draw_rows,
    numbers_of,
    rows_text,
)
from manyranks import figures
from manyranks.launcher.process_group import set_up
from manyranks.recording.collectives import record_collectives

RING_PITCH = 0.6  # inches from row to row, with room for arrows
RING_WIDTH = 4.0  # inches of a frame


def ring_worker(ones: Tensor) -> float:
    """In a rank: one ring all-reduce of a vector of float32 ones; returns its first sum."""
    vector = ones.to(set_up(bare=False))
    ring_all_reduce(vector)
    return vector[0].item()


def frames_worker() -> list[list[float]]:
    """In a rank: the numbers it holds at the start and after each round of the ring.

    Rank r starts with 1, 2, 3, ... times 10 ** r, so the digits of a sum show which ranks are in
    it. There are as many numbers as ranks: a piece is one number.
    """
    device, isend = set_up(bare=False), dist.isend
    vector = torch.arange(1, dist.get_world_size() + 1, device=device) * 10 ** dist.get_rank()
    states = []

    def record_send(*args, **kwargs) -> dist.Work | None:
        states.append(vector.tolist())  # each round starts with its send
        return isend(*args, **kwargs)

    with patch.object(dist, "isend", record_send):
        ring_all_reduce(vector)
    return [*states, vector.tolist()]


def record_rings(
    ring: Callable[[Tensor], None], ranks: Sequence[int], numbers: int = 12_000
) -> dict:
    """By number of ranks: what goes over the wire when `ring` adds up `numbers` float32."""
    return {count: record_collectives(ring, torch.ones(numbers), ranks=count) for count in ranks}


def busiest_rank_bytes(wires: Mapping[int, pd.DataFrame]) -> dict[int, int]:
    """By number of ranks: the bytes that the busiest rank sent."""
    sends = {ranks: wire[wire["op"] == "send"] for ranks, wire in wires.items()}
    return {
        ranks: int(messages.groupby("rank")["bytes"].sum().max())
        for ranks, messages in sends.items()
    }


def sends_only_to_next_rank(wires: Mapping[int, pd.DataFrame]) -> bool:
    """Whether every message goes from rank r to rank r + 1, or from the last one to rank 0."""
    sends = {ranks: wire[wire["op"] == "send"] for ranks, wire in wires.items()}
    return all(
        (messages["peer"] == (messages["rank"] + 1) % n).all() for n, messages in sends.items()
    )


# The pictures


class RingFrame(NamedTuple):
    """What all ranks hold after a round, and which piece each of them sent in it."""

    title: str
    rows: list[list[float]]  # a number a piece, by rank
    pieces: list[int]  # by rank; empty at the start


def ring_frames(states: Sequence[Sequence]) -> list[RingFrame]:
    """The rounds of what `launch(frames_worker, ranks=N)` returned.

    Rank r sent the piece that changed on rank r + 1.
    """
    rounds = list(zip(*states, strict=True))  # [round][rank][piece]
    frames = [RingFrame("start", list(rounds[0]), [])]
    for number, (old, new) in enumerate(itertools.pairwise(rounds), start=1):
        pieces = range(len(states))
        changed_pieces = [
            next(piece for piece in pieces if had[piece] != has[piece])
            for had, has in zip(old, new, strict=True)
        ]
        half = "add" if number < len(states) else "pass on"
        sent_pieces = changed_pieces[1:] + changed_pieces[:1]
        frames.append(RingFrame(f"round {number}: {half}", list(new), sent_pieces))
    return frames


@figures.house_style
def ring_frame_plot(all_frames: Sequence[RingFrame], number: int) -> figures.Picture:
    """One frame: a row a rank, a column a piece, an arrow for each piece that was just sent."""
    axes = figures.sheet(RING_WIDTH + 0.2, _height(all_frames))
    figures.label_ranks(axes, len(all_frames[0].rows), 2 * HEAD + HEIGHT / 2, RING_PITCH)
    _draw_frame(axes, (LEFT, 0), all_frames[number], all_frames[0], RING_WIDTH - LEFT)
    return figures.Picture(axes.figure, _words(all_frames[number]))


def _words(frame: RingFrame) -> str:
    """Which piece each rank sent, and what each rank holds."""
    moves = [
        f"rank {rank} sent piece {piece} to rank {(rank + 1) % len(frame.rows)}"
        for rank, piece in enumerate(frame.pieces)
    ]
    return (
        f"{frame.title.capitalize()}. "
        + (f"{', '.join(moves)}. " if moves else "")
        + f"{rows_text([[row] for row in frame.rows])}."
    )


def _height(all_frames: Sequence[RingFrame]) -> float:
    return 2 * HEAD + len(all_frames[0].rows) * RING_PITCH + 0.2


def _draw_frame(
    axes: figures.Axes, corner: tuple[float, float], frame: RingFrame, first: RingFrame, room: float
) -> None:
    left, top = corner
    axes.text(left, top + HEAD / 2, frame.title, va="center", weight="bold")
    top += 2 * HEAD
    rows, before = [numbers_of(row) for row in frame.rows], [numbers_of(row) for row in first.rows]
    box = draw_rows(axes, rows, before, (left, top), pitch=RING_PITCH, room=room)
    for rank, piece in enumerate(frame.pieces):
        middle, start = left + piece * box + box / 2 - 0.025, top + rank * RING_PITCH + HEIGHT
        starts = [start]
        if rank == len(rows) - 1:  # the ring closes: the last rank sends to rank 0
            starts.append(top - (RING_PITCH - HEIGHT))
        for y in starts:
            ends = (middle, y), (middle, y + RING_PITCH - HEIGHT)
            figures.arrow(axes, *ends, rank, arrowstyle="-|>", linewidth=2.2)


def rounds_slider(all_frames: Sequence[RingFrame]) -> figures.Stepper:
    """The frames behind a slider."""
    pictures = [ring_frame_plot(all_frames, number) for number in range(len(all_frames))]
    return figures.stepper(pictures, "round")
