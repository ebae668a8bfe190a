"""Chapter 05: the ring all-reduce, round by round, and what it sends."""

from collections.abc import Callable, Mapping, Sequence
from unittest.mock import patch

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.exercises.ring_all_reduce import ring_all_reduce
from ddp_workbook.launcher.process_group import set_up
from ddp_workbook.recording.collectives import record_collectives


def ring_worker(numbers: int) -> float:
    """In a rank: one ring all-reduce of a vector of float32 ones; returns its first sum."""
    vector = torch.ones(numbers, device=set_up(bare=False))
    ring_all_reduce(vector)
    return vector[0].item()


def frames_worker() -> list[list[float]]:
    """In a rank: the numbers it holds at the start and after each round of the ring.

    Rank r starts with 1, 2, 3, ... times 10 ** r, so the digits of a sum show which ranks are in
    it. There are as many numbers as ranks: a piece is one number.
    """
    device, isend = set_up(bare=False), dist.isend
    vector = torch.arange(1, dist.get_world_size() + 1, device=device) * 10 ** dist.get_rank()
    held = []

    def watched(*args, **kwargs) -> dist.Work | None:
        held.append(vector.tolist())  # each round starts with its send
        return isend(*args, **kwargs)

    with patch.object(dist, "isend", watched):
        ring_all_reduce(vector)
    return [*held, vector.tolist()]


def recorded(ring: Callable[[Tensor], None], ranks: Sequence[int], numbers: int = 12_000) -> dict:
    """By number of ranks: what goes over the wire when `ring` adds up `numbers` float32."""
    return {count: record_collectives(ring, torch.ones(numbers), ranks=count) for count in ranks}


def sent_by_each_rank(wires: Mapping[int, pd.DataFrame]) -> dict[int, int]:
    """By number of ranks: the bytes that the busiest rank sent."""
    sends = {ranks: wire[wire["op"] == "send"] for ranks, wire in wires.items()}
    return {ranks: int(sent.groupby("rank")["bytes"].sum().max()) for ranks, sent in sends.items()}


def goes_only_to_the_next_rank(wires: Mapping[int, pd.DataFrame]) -> bool:
    """Whether every message goes from rank r to rank r + 1, or from the last one to rank 0."""
    sends = {ranks: wire[wire["op"] == "send"] for ranks, wire in wires.items()}
    return all((sent["peer"] == (sent["rank"] + 1) % n).all() for n, sent in sends.items())


def growth(*counts: int) -> pd.DataFrame:
    """By number of ranks: a ring's rounds and bytes, and what rank 0 sends if it adds up alone."""
    rows = [
        (f"{n:,}", f"{2 * (n - 1):,}", f"{2 * (n - 1) / n:.3f} S", f"{n - 1:,} S") for n in counts
    ]
    columns = ["ranks", "rounds of a ring", "sent by each rank", "sent by rank 0, without a ring"]
    return pd.DataFrame(rows, columns=columns)
