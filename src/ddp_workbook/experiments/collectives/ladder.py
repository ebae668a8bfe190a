"""Four ways to add up one model's gradients, timed: what each rung of the ladder saves.

The model has many small parameters, as real ones have: 2 tensors a layer. The ways are those that
DDP's authors describe (Li et al., 2020): a message per parameter, one message of all gradients,
buckets, and buckets that are sent while backward still computes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook import figures
from ddp_workbook.experiments.collectives.slow_wire import SlowWire
from ddp_workbook.figures.palette import INK, series_colour, tint
from ddp_workbook.launcher.calls import Call
from ddp_workbook.launcher.launch import run_ranks
from ddp_workbook.launcher.process_group import set_up
from ddp_workbook.recording.timing import synchronise

WIDTH, DEPTH, ROWS = 192, 32, 256
BUCKET = 2**20  # bytes
HERE, PRETEND = "this machine's memory", "a pretend network, 1 Gbit/s"
RUNGS = (
    "no communication",
    "one per parameter",
    "one flat vector",
    "buckets, after backward",
    "buckets, during backward (DDP)",
)
DISTURBED = "A bar ends left of the dashed line: noise is larger than the cost of communication."


def one_per_parameter(gradients: list[Tensor], send: Callable) -> None:
    """One all-reduce for each gradient, one after the other."""
    for gradient in gradients:
        send(gradient).wait()


def one_flat_vector(gradients: list[Tensor], send: Callable) -> None:
    """Copy all gradients into one vector, all-reduce it, copy them back."""
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    send(flat).wait()
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def in_buckets(gradients: list[Tensor], send: Callable) -> None:
    """Vectors of about BUCKET bytes each, all started before the first is waited for."""
    filled: list[list[Tensor]] = [[]]
    flats = []
    for gradient in gradients:
        if sum(one.nbytes for one in filled[-1]) >= BUCKET:
            filled.append([])
        filled[-1].append(gradient)
    for bucket in filled:
        flat = torch.cat([gradient.flatten() for gradient in bucket])
        flats.append((bucket, flat, send(flat)))
    for bucket, flat, sending in flats:
        sending.wait()
        for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))


def seconds_of_rungs(rounds: int) -> dict[str, list[list[float]]]:
    """In a rank: seconds of a forward and backward pass, by network, as [round][rung]."""
    device = set_up(bare=False)
    return {HERE: _timed(rounds, device, None), PRETEND: _timed(rounds, device, SlowWire())}


def time_ladder(rounds: int = 7) -> pd.DataFrame:
    """A table of network, rung, round and seconds, those of the slower of two ranks."""
    # 300 s: 90 passes take seconds on a quiet machine, and over a minute on a crowded one
    one, other = run_ranks(Call(seconds_of_rungs, (rounds,), {}), 2, 300, quiet=True)
    rows = [
        (network, rung, number + 1, max(one[network][number][place], other[network][number][place]))
        for network in one
        for number in range(rounds)
        for place, rung in enumerate(RUNGS)
    ]
    return pd.DataFrame(rows, columns=["network", "rung", "round", "seconds"])


def _timed(rounds: int, device: torch.device, wire: SlowWire | None) -> list[list[float]]:
    torch.manual_seed(0)
    layers = [part for _ in range(DEPTH) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    model, rows = nn.Sequential(*layers).to(device), torch.randn(ROWS, WIDTH, device=device)
    ddp = DistributedDataParallel(model, bucket_cap_mb=BUCKET / 2**20)
    if wire:
        ddp.register_comm_hook(dist.get_world_size(), wire.as_hook)
    send = wire.all_reduce if wire else lambda one: dist.all_reduce(one, async_op=True)

    def by_hand(way: Callable | None) -> None:
        with ddp.no_sync():
            model(rows).sum().backward()
        if way:
            way([one.grad for one in reversed(list(model.parameters()))], send)

    steps: list[Callable[[], None]] = [
        lambda: by_hand(None),
        lambda: by_hand(one_per_parameter),
        lambda: by_hand(one_flat_vector),
        lambda: by_hand(in_buckets),
        lambda: ddp(rows).sum().backward(),
    ]
    timings = [[_seconds(step, model, device) for step in steps] for _ in range(rounds + 2)]
    return timings[2:]  # DDP rebuilds its buckets after its first step


def _seconds(step: Callable[[], None], model: nn.Module, device: torch.device) -> float:
    model.zero_grad()
    dist.barrier()
    synchronise(device)
    begun = time.perf_counter()
    step()
    synchronise(device)
    return time.perf_counter() - begun


@figures.drawn
def ladder_plot(times: pd.DataFrame) -> figures.Picture:
    """A panel a network, a bar a rung: its fastest round, with a line to the median of the rounds.

    `times` has the columns network, rung, round and seconds. The first rung communicates nothing,
    and a dashed line marks where it ends: what is right of the line is the cost of communication.
    If a bar ends left of the line, a sentence above the panels says why.
    """
    rungs = list(times["rung"].unique())
    figure = figures.Figure((figures.WIDTH, 0.8 + 0.42 * len(rungs)), layout="constrained")
    if is_disturbed(times):
        figure.suptitle(DISTURBED, x=0.01, ha="left", size=10)
    networks = list(times["network"].unique())
    panels = figure.subplots(1, len(networks), sharey=True, squeeze=False)[0]
    for axes, network in zip(panels, networks, strict=True):
        of_rungs = times[times["network"] == network].groupby("rung", sort=False)["seconds"]
        table = of_rungs.agg(["min", "median"]).mul(1e3).loc[rungs]
        for row, one in enumerate(table.itertuples()):
            colour = series_colour(0 if row == 0 else 2)
            axes.barh(row, one.min, height=0.62, color=tint(colour, 0.6))
            axes.plot([one.min, one.median], [row, row], color=INK, linewidth=1.2)
            axes.text(one.median, row, f"  {one.min:.0f}", va="center", size=10)
        axes.axvline(table["min"].iloc[0], color=INK, linestyle="dashed", linewidth=1.2)
        axes.set(title=network, xlabel="milliseconds")
        axes.set_xlim(0, 1.18 * table["median"].max())
        figures.label_rows(axes, rungs)
    fastest = times.groupby(["network", "rung"], sort=False)["seconds"].min() * 1e3
    texts = [
        f"{network}: " + ", ".join(f"{rung} {ms:.0f}" for (_, rung), ms in part.items())
        for network, part in fastest.groupby(level="network", sort=False)
    ]
    about = "Milliseconds of forward, backward and communication, in the fastest round"
    words = f"{about}. {'. '.join(texts)}."
    return figures.Picture(figure, f"{words} {DISTURBED}" if is_disturbed(times) else words)


def is_disturbed(times: pd.DataFrame) -> bool:
    """Whether some way was faster than no communication, which only noise can explain."""
    fastest = times.groupby(["network", "rung"], sort=False)["seconds"].min()
    return any((part < part.iloc[0]).any() for _, part in fastest.groupby(level="network"))
