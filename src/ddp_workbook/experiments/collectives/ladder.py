"""Four ways to add up one model's gradients, timed: what each rung of the ladder saves.

The model has many small parameters, as real ones have: 2 tensors a layer. The ways are those that
DDP's authors describe (Li et al., 2020): a message per parameter, one message of all gradients,
buckets, and buckets that are sent while backward still computes.
"""

import time
from collections.abc import Callable

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.experiments.collectives.slow_wire import SlowWire
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
    filled, flats = [[]], []
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
