"""What a rank holds in a training step, measured and by formula, for the four ways of the page."""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
from torch import nn

from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.chapters.fully_sharded import LEARNING_RATE
from ddp_workbook.digits import DigitsDataset, DigitsTransformer
from ddp_workbook.experiments.fully_sharded.wire import (
    AS_ONE,
    BY_HAND,
    DDP,
    DEPTH,
    ROWS,
    WAYS,
    WIDTH,
    made,
)
from ddp_workbook.launcher.launch import launch
from ddp_workbook.planning import formulas
from ddp_workbook.recording.memory import ROOT, Held, MemoryLedger, Moment

PARTS = ("parameters", "gradients", "optimizer", "unsharded")
BAR = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "buckets": "buckets",
    "unsharded": "unsharded",
}


class Measured(NamedTuple):
    """One rank in its third step: bytes by part, and which unit was whole when."""

    held: Held
    timeline: list[Moment]


def measured_steps(
    ranks: int = 2, width: int = WIDTH, depth: int = DEPTH, ways: Sequence[str] = WAYS
) -> dict:
    """For each of `ways`, and in it for each rank, what was Measured. One launch for all."""
    of_ranks = launch(measured_on_this_rank, width, depth, ways, ranks=ranks, timeout=300)
    return {way: [of_rank[way] for of_rank in of_ranks] for way in ways}


def measured_on_this_rank(width: int, depth: int, ways: Sequence[str]) -> dict[str, Measured]:
    """Train three steps with AdamW in each of `ways`, and measure the third."""
    device = setup()
    measured = {
        way: measured_step(partial(made, way, device=device), device, width, depth) for way in ways
    }
    cleanup()
    return measured


def measured_step(
    make: Callable[[DigitsTransformer], nn.Module], device: torch.device, width: int, depth: int
) -> Measured:
    """The third step of a new model that `make` prepares; the caller has joined the group."""
    torch.manual_seed(0)
    model = make(DigitsTransformer(width, depth).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    mine = slice(dist.get_rank(), ROWS, dist.get_world_size())
    digits = DigitsDataset()
    images, labels = digits.images[mine].to(device), digits.labels[mine].to(device)

    def step() -> None:
        optimizer.zero_grad()
        forward_and_backward(model, images, labels, ROWS)
        optimizer.step()

    step()
    step()
    with MemoryLedger(model, optimizer) as ledger:
        step()
    return Measured(ledger.held, ledger.timeline)


def predicted(way: str, ranks: int, width: int = WIDTH, depth: int = DEPTH) -> formulas.Ledger:
    """The same bytes on rank 0 from the shapes of the parameters."""
    units = units_of(DigitsTransformer(width, depth), whole=way == AS_ONE)
    if way == DDP:
        return formulas.ddp(units)
    return formulas.fully_sharded(units, ranks)


def units_of(model: DigitsTransformer, whole: bool) -> list[list[torch.Size]]:
    """Shapes of what is gathered together: the outermost first, then each block."""
    blocks = [] if whole else [[p.shape for p in block.parameters()] for block in model.blocks]
    inside = set() if whole else {id(p) for p in model.blocks.parameters()}
    return [[p.shape for p in model.parameters() if id(p) not in inside], *blocks]


def memory_table(steps: dict, width: int = WIDTH, depth: int = DEPTH) -> pd.DataFrame:
    """For each way and part the bytes of rank 0, in the columns "measured" and "by formula".

    `steps` is what `measured_steps` returned. What is unsharded by hand has no formula, but nan.
    """
    rows = {}
    for way, of_ranks in steps.items():
        by_formula = predicted(way, len(of_ranks), width, depth)
        for part in PARTS:
            known = (way, part) != (BY_HAND, "unsharded")
            rows[way, part] = {
                "measured": getattr(of_ranks[0].held, part),
                "by formula": getattr(by_formula, part) if known else math.nan,
            }
    return pd.DataFrame(rows).T.rename_axis(["way", "part"])


def in_kilobytes(table: pd.DataFrame) -> pd.DataFrame:
    """`memory_table` with a row a way, and for each part both numbers side by side, in kB."""
    wide = (table / 1000).round().astype("Int64").unstack("part")
    wide = wide.swaplevel(axis=1)[list(PARTS)].reindex(list(WAYS))
    return wide.astype(object).where(wide.notna(), "")


def messages_in_order(steps: dict, ways: list[str]) -> pd.DataFrame:
    """A column a way: which unit rank 0 gathers or reduce-scatters, one message after the other."""
    columns = {way: pd.Series(_messages(steps[way][0].timeline)) for way in ways}
    return pd.DataFrame(columns).fillna("").rename_axis("message")


def _messages(timeline: list[Moment]) -> list[str]:
    """The messages in order: each new buffer stands for the message that it was allocated for."""
    names = {"gather buffers": "all-gather", "scatter buffers": "reduce-scatter"}
    found, before = [], set()
    for moment in timeline:
        now = {key for key in moment.live if key[0] in names}
        found += [f"{names[kind]}, {_unit(unit)}" for kind, unit in sorted(now - before)]
        before = now
    return found


def _unit(name: str) -> str:
    """ "blocks.0" is "block 1"."""
    return f"block {int(name.partition('.')[2]) + 1}" if name != ROOT else "outermost"


def held_by_ranks(steps: dict, ways: list[str]) -> dict[str, list[dict[str, int]]]:
    """For each way a dict of bytes by part for each rank, for the bars; no part of 0 bytes."""
    return {way: [_bar(one.held) for one in steps[way]] for way in ways}


def _bar(held: Held) -> dict[str, int]:
    sizes = {name: getattr(held, part) for part, name in BAR.items()}
    return {name: size for name, size in sizes.items() if size}


def whole_weights(steps: dict, ways: list[str]) -> dict[str, list[tuple[str, dict[str, int]]]]:
    """For each way what rank 0 does, one thing after the other, and its bytes of whole weights.

    The bytes are by unit, at the moment of each event that has the most. Weights on their way in a
    buffer count; a unit counts once, also while it is copied from there.
    """
    return {way: _by_event(steps[way][0].timeline) for way in ways}


def _by_event(timeline: list[Moment]) -> list[tuple[str, dict[str, int]]]:
    runs = [
        (event, max(map(_whole, moments), key=_total))
        for event, moments in itertools.groupby(timeline, key=lambda moment: moment.event)
    ]
    events = ["", *(event for event, _ in runs), ""]
    return [
        (_in_words(event), whole)
        for (event, whole), before, after in zip(runs, events, events[2:], strict=False)
        if not (before.startswith(f"{event} ") and after.startswith(f"{event} "))  # between blocks
    ]


def _whole(moment: Moment) -> dict[str, int]:
    """Bytes by unit, of weights that are whole or in the buffer of an all-gather."""
    whole: dict[str, int] = {}
    for (kind, unit), size in moment.live.items():
        if kind in ("gathered", "gather buffers"):
            whole[unit] = max(size, whole.get(unit, 0))
    return whole


def _total(whole: dict[str, int]) -> int:
    return sum(whole.values())


def _in_words(event: str) -> str:
    """ "forward blocks.0" is "forward, block 1"."""
    when, _, block = event.partition(" blocks.")
    outside = {"forward": "outside the blocks", "backward": "outside the blocks"}
    return f"{when}, block {int(block) + 1}" if block else outside.get(when, when)
