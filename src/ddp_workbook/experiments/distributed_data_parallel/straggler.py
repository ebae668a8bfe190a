"""Who waits for whom: one rank is late in one part of its program, and every rank has a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ddp_workbook
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import setup
from manyranks import figures
from manyranks.figures.palette import INK, series_colour, tint
from manyranks.rank_colours import rank_colour
from manyranks.recording.timing import synchronise

DELAY_MS = 50  # milliseconds
STEPS = 4
ROWS, WIDTH, DEPTH = 128, 384, 3  # enough to compute that each part can be seen beside the delay
NOWHERE, ASLEEP, WAITS = "nowhere", "sleeps", "waits"
MIN_AXIS_MS = 250  # ms that the axis has at least
PARTS = ("constructor", "forward", "backward", "step")
ALERT = "#c62828"
FILLS = {
    "constructor": series_colour(5),
    "forward": series_colour(1),
    "backward": series_colour(2),
    "step": series_colour(3),
    ASLEEP: INK,
    WAITS: tint(ALERT, 0.3),
}


class Part(NamedTuple):
    """A part of a rank's program; start and end in milliseconds since all ranks were ready.

    `name` is one of PARTS, ASLEEP, or WAITS: then `inside` says in which of the PARTS.
    """

    name: str
    start: float
    end: float
    inside: str = ""


def play_straggler() -> ddp_workbook.Play:
    """Four steps of three ranks, with controls for who is late, in which part, by how much."""
    return ddp_workbook.play(
        run_steps,
        timeline_plot,
        ranks=3,
        stills=[
            {"late": NOWHERE},
            {"late": "constructor"},
            {"late": "step"},
            {"who": 0},
            {"late": "backward", "by": 100},
        ],
        who=ddp_workbook.slider("rank that is slow", range(3), 1),
        late=ddp_workbook.choice("it sleeps in", (NOWHERE, *PARTS), "forward"),
        by=ddp_workbook.slider("it sleeps for, ms", (10, 20, DELAY_MS, 100), DELAY_MS),
    )


def run_steps(late: str = NOWHERE, who: int = 1, by: float = DELAY_MS) -> list[Part]:
    """Constructor, then forward, backward and step in turns.

    Rank `who` sleeps for `by` milliseconds in each part called `late`. In backward, a rank computes
    until its own last gradient is ready, and then waits; in forward, it waits until its model runs.
    """
    device = setup()
    images, model = DigitsDataset().images[:ROWS].to(device), DigitsMLP(WIDTH, DEPTH).to(device)
    sleeps, parts, moments = dist.get_rank() == who, [], []

    def note(*_: object) -> None:
        """The model begins, or a gradient is ready."""
        if device.type == "cuda":  # only what is computed: DDP sends on a stream of its own
            torch.cuda.current_stream().synchronize()
        moments.append(time.perf_counter())

    model.register_forward_pre_hook(note)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(note)
    dist.barrier()
    start_time = time.perf_counter()

    def add(name: str, start: float, end: float, inside: str = "") -> None:
        if end > start:
            parts.append(Part(name, 1e3 * (start - start_time), 1e3 * (end - start_time), inside))

    def record_part(name: str, work: Callable):
        start = time.perf_counter()
        if name == late and sleeps:
            time.sleep(by / 1e3)
            add(ASLEEP, start, time.perf_counter())
            start = time.perf_counter()
        moments.clear()
        result = work()
        synchronise()
        end = time.perf_counter()
        if name == "forward":
            add(WAITS, start, moments[0], name)
            start = moments[0]
        computed = moments[-1] if name == "backward" else end
        add(name, start, computed)
        add(WAITS, computed, end, name)
        return result

    ddp = record_part("constructor", lambda: DistributedDataParallel(model))
    optimizer = torch.optim.AdamW(ddp.parameters())
    for _ in range(STEPS):
        loss = record_part("forward", lambda: ddp(images).logsumexp(dim=1).mean())
        record_part("backward", loss.backward)
        record_part("step", optimizer.step)
        optimizer.zero_grad()
    dist.barrier()
    return parts


def with_waiting_in_constructor(of_ranks: Sequence[Sequence[Part]]) -> list[list[Part]]:
    """Split each constructor where the last rank begins its own: until then the others wait."""
    begins = max(
        (part.start for parts in of_ranks for part in parts if part.name == "constructor"),
        default=0.0,
    )
    split: list[list[Part]] = []
    for parts in of_ranks:
        split.append([])
        for part in parts:
            if part.name == "constructor" and part.start < begins:
                middle = min(begins, part.end)
                split[-1].append(Part(WAITS, part.start, middle, part.name))
                part = part._replace(start=middle)
            split[-1].append(part)
    return split


def milliseconds_waited(parts: Sequence[Part]) -> dict[str, float]:
    """Milliseconds that a rank has waited, by the part in which it did."""
    waited = dict.fromkeys(PARTS, 0.0)
    for part in parts:
        if part.name == WAITS:
            waited[part.inside] += part.end - part.start
    return waited


@figures.house_style
def timeline_plot(
    of_ranks: Sequence[Sequence[Part]],
    who: int = 1,
    late: str = NOWHERE,
    by: float = DELAY_MS,
    **_: object,
) -> figures.Picture:
    """A lane a rank: what it computes, where it sleeps, where it waits; and in which part it waits.

    A rank waits in backward from its own last gradient on, so its all-reduces count as waiting.
    """
    of_ranks = with_waiting_in_constructor(of_ranks)
    figure = figures.Figure((figures.WIDTH, 1.1 + 0.7 * len(of_ranks)), layout="constrained")
    axes = figure.subplots()
    end = max(MIN_AXIS_MS, *(part.end for parts in of_ranks for part in parts))
    said = []
    for rank, parts in enumerate(of_ranks):
        for part in parts:
            axes.barh(rank, part.end - part.start, 0.62, left=part.start, color=FILLS[part.name])
            _name(axes, rank, part, end)
        waited = milliseconds_waited(parts)
        most = max(waited, key=lambda name: waited[name])
        total = max(part.end for part in parts)
        words = f"waits {sum(waited.values()):.0f} of {total:.0f} ms,\nmost in {most}"
        figures.beside(axes, rank, words, size=9)
        said.append(f"rank {rank} {words}".replace("\n", " "))
    figures.label_rows(axes, [f"rank {rank}" for rank in range(len(of_ranks))])
    for rank, label in enumerate(axes.get_yticklabels()):
        label.set(color=rank_colour(rank), weight="bold")
    axes.set(xlim=(0, end), xlabel="milliseconds since all ranks were ready")
    where = "the constructor" if late == "constructor" else f"each {late}"
    title = f"Rank {who} sleeps {by:g} ms in {where}" if late != NOWHERE else "No rank is late"
    axes.set_title(title)
    seen = {part.name for parts in of_ranks for part in parts}
    figures.name_looks(figure, {name: {"color": FILLS[name]} for name in FILLS if name in seen})
    lanes = "; ".join(f"rank {rank} {_in_words(parts)}" for rank, parts in enumerate(of_ranks))
    return figures.Picture(figure, f"{title}. {'; '.join(said)}. In milliseconds: {lanes}.")


def _name(axes: figures.Axes, rank: int, part: Part, end: float) -> None:
    """Write into a bar that sleeps or waits what it does, in as many words as fit."""
    if part.name not in (ASLEEP, WAITS):
        return
    long = f"{part.name} in {part.inside}" if part.inside else part.name
    for words in (long, part.name):
        if part.end - part.start > end * len(words) / 90:
            colour = "white" if part.name == ASLEEP else INK
            place = {"ha": "center", "va": "center", "size": 9}
            axes.text((part.start + part.end) / 2, rank, words, color=colour, **place)
            return


def _in_words(parts: Sequence[Part]) -> str:
    """Where a rank sleeps or waits for a millisecond or more."""
    return ", ".join(
        f"{part.name}{f' in {part.inside}' if part.inside else ''} "
        f"from {figures.number(part.start)} to {figures.number(part.end)}"
        for part in parts
        if part.name in (ASLEEP, WAITS) and part.end - part.start >= 1
    )
