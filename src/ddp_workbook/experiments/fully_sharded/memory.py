"""What a rank holds in a training step, measured and by formula, for the four ways of the page."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import torch

import ddp_workbook
from ddp_workbook.chapters.digits import DigitsTransformer
from ddp_workbook.experiments.fully_sharded import strategies
from ddp_workbook.experiments.fully_sharded.ledger import activation_bytes
from ddp_workbook.experiments.fully_sharded.strategies import (
    WIDTH,
    StepMeasurement,
    Strategy,
    units_of,
)
from manyranks import figures
from manyranks.figures.palette import INK, part_look, tint
from manyranks.launcher.launch import launch
from manyranks.planning import formulas
from manyranks.planning.speed import in_ring
from manyranks.recording.memory import ROOT, MemoryBreakdown, Moment

DDP, BY_HAND, ONE_UNIT, BY_BLOCK = (
    "DDP",
    "by hand",
    "fully_shard, one unit",
    "fully_shard, by block",
)
WAYS = {
    DDP: Strategy(DDP, "DDP"),
    BY_HAND: Strategy(BY_HAND, "by hand"),
    ONE_UNIT: Strategy(ONE_UNIT, "one unit"),
    BY_BLOCK: Strategy(BY_BLOCK),
}
DEPTH = 3
KB = 1000
LARGE = 100 * KB  # a bar that has room for a number
PARTS = ("parameters", "gradients", "optimizer", "unsharded")
BAR = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "buckets": "buckets",
    "unsharded": "unsharded",
    "activations": "activations",
}
RING = "kB sent by a rank in a ring"
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BY_FORMULA = "by formula"
LARGER = 64  # ranks of a second bar by formula, beside the few that are measured


def measure_steps(
    ranks: int = 2, depth: int = DEPTH, ways: Sequence[str] = tuple(WAYS)
) -> dict[str, list[StepMeasurement]]:
    """For each of `ways` what each rank has Measured. One launch for all."""
    selection = [WAYS[way] for way in ways]
    of_ranks = launch(strategies.measure_steps, selection, WIDTH, depth, ranks=ranks, timeout=300)
    return {way: [of_rank[way] for of_rank in of_ranks] for way in ways}


def play_memory() -> ddp_workbook.Play:
    """What ranks hold in a step, with controls for how it is trained."""
    return ddp_workbook.play(
        memory_of_rank,
        memory_plot,
        ranks=ddp_workbook.slider("ranks", (1, 2, 3, 4), 4),
        meanwhile=memory_plot,
        stills=[
            {"ranks": 1},
            {"ranks": 2},
            {"way": ONE_UNIT},
            {"dtype": "bfloat16"},
            {"depth": 2},
            {"way": DDP},
        ],
        way=ddp_workbook.choice("trained with", (DDP, ONE_UNIT, BY_BLOCK), BY_BLOCK),
        depth=ddp_workbook.slider("blocks", range(1, 9), 8),
        dtype=ddp_workbook.choice("all numbers are", DTYPES),
    )


def memory_of_rank(way: str, depth: int, dtype: str) -> MemoryBreakdown | None:
    """What this rank held in a third step."""
    return strategies.measure_steps([WAYS[way]], WIDTH, depth, DTYPES[dtype])[way].held


@figures.house_style
def memory_plot(
    of_ranks: Sequence[MemoryBreakdown] = (), *, ranks: int, way: str, depth: int, dtype: str
) -> figures.Picture:
    """kB by part: a bar of what the formula says of rank 0, and one measured on each rank.

    The last bar is by formula again, for LARGER ranks.
    """
    by_formula = {
        name: _bar(predicted_memory(way, count, depth=depth, dtype=DTYPES[dtype]))
        for name, count in ((BY_FORMULA, ranks), (f"on {LARGER} ranks", LARGER))
    }
    rows = by_formula | {f"rank {n}": _bar(breakdown) for n, breakdown in enumerate(of_ranks)}
    table = pd.DataFrame(rows).T.fillna(0) / KB
    table = table[[name for name in BAR.values() if name in table]]
    names = [BY_FORMULA, *(f"rank {rank}" for rank in range(ranks)), f"on {LARGER} ranks"]
    about = "What ranks hold" if of_ranks else "What a rank should hold; the ranks still measure"
    picture = figures.bars(table.reindex(names, fill_value=0), "kB a rank holds", about)
    picture.axes.set_title(f"{way}, {depth} blocks, {dtype}: {table.loc[BY_FORMULA].sum():,.0f} kB")
    return picture


def predicted_memory(
    way: str, ranks: int, depth: int = DEPTH, dtype: torch.dtype = torch.float32
) -> formulas.MemoryEstimate:
    """The same bytes on rank 0 from shapes alone: of the parameters, and of what forward saves."""
    units = units_of(DigitsTransformer(WIDTH, depth))
    activations = activation_bytes(WAYS[way], WIDTH, depth, dtype=dtype)
    if way == ONE_UNIT:
        units = [[shape for unit in units for shape in unit]]
    if way == DDP:
        return replace(formulas.ddp(units, dtype=dtype), activations=activations)
    sharded = formulas.fully_sharded(units, ranks, policy=formulas.Policy(dtype=dtype))
    return replace(sharded, activations=activations)


def wire_table(steps: dict[str, list[StepMeasurement]]) -> pd.DataFrame:
    """A row a way: calls by operation, and the kB that a ring sends from each rank for them."""
    rows = {}
    for way, (first, *_) in steps.items():
        calls = Counter(call.op for call in first.wire)
        ring_bytes = sum(in_ring(call) for call in first.wire)
        rows[way] = {op: calls[op] for op in OPERATIONS} | {RING: round(ring_bytes / KB)}
    return pd.DataFrame(rows).T.rename_axis("program")


def messages_in_order(steps: dict, ways: list[str]) -> pd.DataFrame:
    """A column a way: which unit rank 0 gathers or reduce-scatters, one message after the other."""
    columns = {way: pd.Series(_messages(steps[way][0].timeline)) for way in ways}
    for column in columns.values():
        column.index += 1
    return pd.DataFrame(columns).fillna("").rename_axis("message")


def _messages(timeline: list[Moment]) -> list[str]:
    """The messages in order: each new buffer stands for the message that it was allocated for."""
    names = {"gather buffers": "all-gather", "scatter buffers": "reduce-scatter"}
    messages: list[str] = []
    before: set[tuple[str, str]] = set()
    for moment in timeline:
        now = {key for key in moment.live if key[0] in names}
        messages += [f"{names[kind]}, {_unit(unit)}" for kind, unit in sorted(now - before)]
        before = now
    return messages


def _unit(name: str) -> str:
    """ "blocks.0" is "block 1"."""
    return f"block {int(name.partition('.')[2]) + 1}" if name != ROOT else "root"


@figures.house_style
def bars(steps: dict, way: str) -> figures.Picture:
    """An upright bar for each rank, stacked by part, in kB; beside the last one stand the names."""
    table = pd.DataFrame([_bar(step.held) for step in steps[way]]) / KB
    table.index = [f"rank {rank}" for rank in table.index]
    picture = figures.bars({way: table}, "kB a rank holds", "What ranks hold", upright=True)
    for legend in picture.figure.legends:
        legend.remove()
    ends = table.iloc[-1].cumsum()
    for part, size in table.iloc[-1].items():
        place = (len(table) - 0.6, ends[part] - size / 2)
        picture.axes.text(*place, f"{part} {size:,.0f}", va="center")
    picture.axes.set_xlim(-0.5, len(table) + 0.7)
    picture.axes.yaxis.set_major_formatter("{x:,.0f}")
    return picture


def _bar(estimate: MemoryBreakdown | formulas.MemoryEstimate | None) -> dict[str, int]:
    sizes = {name: getattr(estimate, part) for part, name in BAR.items()}
    return {name: size for name, size in sizes.items() if size}


@figures.house_style
def whole_weights(steps: dict, line: str, boxes: str) -> figures.Picture:
    """Two ways of training in one panel: kB of gathered weights on rank 0, event by event.

    Of the first way a line, of the second a box for each gathered unit, with the block's number;
    the one that computes is filled. Each event stands for its moment with the most.
    """
    moments_by_way = {way: whole_by_event(steps[way][0].timeline)[:-1] for way in (line, boxes)}
    figure = figures.Figure((figures.WIDTH, 3.5), layout="constrained")
    axes = figure.subplots()
    heights = [sum(whole.values()) / KB for _, whole in moments_by_way[line]]
    axes.stairs(heights, [place - 0.5 for place in range(len(heights) + 1)], color=INK, lw=2.5)
    for place, (event, whole) in enumerate(moments_by_way[boxes]):
        own = _block(event)
        bottom = 0.0
        for unit in sorted(whole, key=lambda unit: (_block(unit) != own or not own, unit)):
            height, computes = whole[unit] / KB, own != "" and _block(unit) == own
            colour = part_look("unsharded")["facecolor"]
            look = {"color": colour if computes else tint(colour, 0.2), "edgecolor": colour}
            axes.bar(place, height, bottom=bottom, width=0.86, linewidth=0.8, **look)
            if whole[unit] > LARGE:
                shade = "white" if computes else INK
                y = bottom + height / 2
                axes.text(place, y, _block(unit), ha="center", va="center", color=shade)
            bottom += height
    most = {way: max(sum(w.values()) for _, w in of) / KB for way, of in moments_by_way.items()}
    top = 1.16 * max(most.values())
    axes.set(ylim=(0, top), xlim=(-0.6, len(heights) - 0.4), ylabel="kB of gathered weights")
    middle = len(heights) / 2 - 0.5
    axes.text(middle, max(heights) + 0.02 * top, f"{line} (the line)", ha="center", va="bottom")
    label = middle
    if _gathered_anew_at_the_turn(steps[boxes][0].timeline):
        label = sum(event.startswith("forward") for event, _ in moments_by_way[boxes]) / 2
        height = 0.56 * most[boxes]
        axes.text(middle, height, "freed, then\ngathered\nagain", ha="center", va="bottom", size=9)
    axes.text(label, most[boxes] + 0.04 * top, f"{boxes} (boxes)", ha="center", va="bottom")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y")
    axes.tick_params(axis="x", length=0)
    events = [event for event, _ in moments_by_way[line]]
    axes.set_xticks(range(len(events)), [_block(event) or "root" for event in events], size=9)
    for when in ("forward", "backward"):
        places = [place for place, event in enumerate(events) if event.startswith(when)]
        centre = (places[0] + places[-1]) / 2
        look = {"ha": "center", "va": "top", "weight": "bold"}
        axes.text(centre, -0.11, when, transform=axes.get_xaxis_transform(), **look)
    axes.set_xlabel(" ")  # room for the two words
    words = (f"{way}: at most {size:.0f} kB of weights are gathered" for way, size in most.items())
    return figures.Picture(figure, "; ".join(words) + ".")


def _gathered_anew_at_the_turn(timeline: list[Moment]) -> bool:
    """Whether a block is there when forward ends, none when backward begins, and then it again."""
    first = next(n for n, moment in enumerate(timeline) if moment.event.startswith("backward"))
    outside = {
        event: [any(map(_block, _whole(moment))) for moment in moments if moment.event == event]
        for event, moments in (("forward", timeline[first - 3 : first]), ("backward", timeline))
    }
    freed = not any(map(_block, _whole(timeline[first])))
    return freed and all(map(any, outside.values()))


def _block(name: str) -> str:
    """The block's number, from 1, in "blocks.0" or in "forward, block 1"; "" outside the blocks."""
    if name.startswith("blocks."):
        return str(int(name.rpartition(".")[2]) + 1)
    return name.partition(", block ")[2]


def whole_by_event(timeline: list[Moment]) -> list[tuple[str, dict[str, int]]]:
    """What a rank does, one thing after the other, and its bytes of gathered weights by unit.

    Weights on their way in a buffer count; a unit counts once, also while it is copied from there.
    """
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
    """Bytes by unit, of weights that are gathered or in the buffer of an all-gather."""
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
