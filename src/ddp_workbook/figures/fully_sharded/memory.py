"""Bytes a rank holds: bars by part for each rank, and what is whole at each moment of a step."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ddp_workbook.figures.palette import rank_hatch, series_colour, tint
from ddp_workbook.figures.style import INK, WIDTH, style

Parts = Mapping[str, int]  # bytes by part
KB = 1000
LARGE = 100 * KB  # a bar that has room for a word


@style()
def ranks_memory_plot(named: Mapping[str, Sequence[Parts]]) -> Figure:
    """A panel for each way of training, a bar for each of its ranks, stacked by part; in kB."""
    figure = Figure((WIDTH, 3.7), layout="constrained")
    panels = figure.subplots(1, len(named), sharey=True, squeeze=False)[0]
    order = list(dict.fromkeys(part for of in named.values() for one in of for part in one))
    for axes, (way, of_ranks) in zip(panels, named.items(), strict=True):
        for rank, parts in enumerate(of_ranks):
            _stack(axes, rank, parts, order)
        axes.set_title(way)
        axes.set_xticks(range(len(of_ranks)), [f"rank {rank}" for rank in range(len(of_ranks))])
        axes.tick_params(axis="x", length=0)
        axes.grid(axis="y")
    panels[0].set_ylabel("kB a rank holds")
    looks = [Patch(label=part, **_look(index)) for index, part in enumerate(order)]
    figure.legend(handles=looks, loc="outside upper center", ncols=5)
    return figure


def alt_text_of_ranks_memory(named: Mapping[str, Sequence[Parts]]) -> str:
    """The bars in words: what rank 0 holds, and whether the others hold as much."""
    words = []
    for way, of_ranks in named.items():
        parts = ", ".join(f"{part} {size / KB:.0f} kB" for part, size in of_ranks[0].items())
        totals = [sum(one.values()) for one in of_ranks]
        alike = max(totals) - min(totals) <= 0.02 * max(totals)
        others = "the other ranks hold as much" if alike else "the other ranks hold less"
        words.append(f"{way}: rank 0 holds {parts}; {others}")
    return ". ".join(words) + "."


@style()
def whole_weights_plot(named: Mapping[str, Sequence[tuple[str, Parts]]]) -> Figure:
    """A panel for each way, a bar for each moment: whole weights in kB, in it the block's number.

    Each moment is (what happens, bytes of whole parameters by unit). The same things happen in all.
    """
    figure = Figure((WIDTH, 1.2 + 1.7 * len(named)), layout="constrained")
    panels = figure.subplots(len(named), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (way, moments) in zip(panels, named.items(), strict=True):
        for place, (_, whole) in enumerate(moments):
            bottom = 0.0
            for unit, size in whole.items():
                height = size / KB
                look = {"color": tint(INK, 0.22), "edgecolor": INK, "linewidth": 0.8}
                axes.bar(place, height, bottom=bottom, width=0.9, **look)
                words = {"ha": "center", "va": "center", "size": 8}
                axes.text(place, bottom + height / 2, _short(unit, size), **words)
                bottom += height
        axes.set_title(way)
        axes.tick_params(axis="x", length=0)
        axes.grid(axis="y")
        axes.set_ylabel("kB of whole weights")
    words = [words for words, _ in next(iter(named.values()))]
    panels[-1].set_xticks(range(len(words)), words, rotation=40, ha="right", size=8)
    return figure


def _short(unit: str, size: int) -> str:
    """What stands in a unit's bar: its block's number; "all" if the whole model is one unit."""
    block = unit.rpartition(".")[2]
    if block.isdigit():
        return str(int(block) + 1)
    return "all" if size > LARGE else ""  # else too small to read


def alt_text_of_whole_weights(named: Mapping[str, Sequence[tuple[str, Parts]]]) -> str:
    """The most that is whole at one moment, for each way."""
    most = {way: max(sum(w.values()) for _, w in moments) / KB for way, moments in named.items()}
    words = (f"{way}: at most {size:.0f} kB of weights are whole" for way, size in most.items())
    return "; ".join(words) + "."


def _stack(axes: Axes, place: float, parts: Parts, order: Sequence[str]) -> None:
    bottom = 0.0
    for part, size in parts.items():
        height = size / KB
        axes.bar(place, height, bottom=bottom, width=0.74, **_look(order.index(part)))
        bottom += height


def _look(index: int) -> dict[str, object]:
    colour, hatch = series_colour(index), rank_hatch(index)
    return {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
