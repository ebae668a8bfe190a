"""Chapter 05: bars of time: who waits for whom, and what hides an all-reduce."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import rank_colour, tint
from ddp_workbook.figures.style import INK, WIDTH, label_rows, style

Times = Sequence[tuple[float, float]]  # by rank: came, left; seconds
Spans = Sequence[tuple[str, float, float]]  # what, start, end; seconds


@style()
def waiting_plot(times: Mapping[str, Times]) -> Figure:
    """A panel a collective, a bar a rank: hatched from when it came until it left.

    `times` holds for each call and rank when it came to the call and when it left it, in seconds.
    A dashed line marks when the last rank came.
    """
    figure = Figure((WIDTH, 0.9 + 0.4 * len(next(iter(times.values())))), layout="constrained")
    panels = figure.subplots(1, len(times), sharey=True, sharex=True, squeeze=False)[0]
    for axes, (call, of_ranks) in zip(panels, times.items(), strict=True):
        for rank, (came, left) in enumerate(of_ranks):
            _full(axes, rank, 0, came, rank)
            _hatched(axes, rank, came, left, rank)
        last = max(came for came, _ in of_ranks)
        axes.axvline(last * 1e3, color=INK, linestyle="dashed", linewidth=1.2)
        axes.set(title=call, xlabel="milliseconds")
        axes.grid(axis="x")
        label_rows(axes, [f"rank {rank}" for rank in range(len(of_ranks))])
    return figure


def alt_text_of_waiting(times: Mapping[str, Times]) -> str:
    """When each rank came and left, and who left before the last one came."""
    texts = []
    for call, of_ranks in times.items():
        last = max(came for came, _ in of_ranks)
        spans = (
            f"rank {rank} from {came * 1e3:.0f} to {left * 1e3:.0f}"
            for rank, (came, left) in enumerate(of_ranks)
        )
        early = [str(rank) for rank, (_, left) in enumerate(of_ranks) if left < last]
        who = f"before the last rank had arrived, rank {', '.join(early)} had left" if early else ""
        texts.append(
            f"In {call}, in milliseconds: {', '.join(spans)}; "
            f"{who or 'no rank left before the last one had arrived'}."
        )
    return "When each rank is inside a collective. " + " ".join(texts)


@style()
def overlap_plot(ways: Mapping[str, Sequence[Spans]]) -> Figure:
    """A panel a way, a bar a rank: full where it works, hatched where it waits."""
    ranks = len(next(iter(ways.values())))
    figure = Figure((WIDTH, 0.7 + 0.55 * ranks), layout="constrained")
    panels = figure.subplots(1, len(ways), sharey=True, sharex=True, squeeze=False)[0]
    for axes, (way, of_ranks) in zip(panels, ways.items(), strict=True):
        for rank, spans in enumerate(of_ranks):
            for what, start, end in spans:
                (_hatched if what == "waits" else _full)(axes, rank, start, end, rank)
        axes.set(title=way, xlabel="milliseconds")
        axes.set_xlim(left=0)  # no bar starts at 0 to the microsecond
        axes.grid(axis="x")
        label_rows(axes, [f"rank {rank}" for rank in range(ranks)])
    return figure


def alt_text_of_overlap(ways: Mapping[str, Sequence[Spans]]) -> str:
    """Each rank's work and waiting, in milliseconds."""
    texts = [
        f"{way}: "
        + "; ".join(
            f"rank {rank} "
            + ", then ".join(
                f"{what} from {start * 1e3:.0f} to {end * 1e3:.0f}" for what, start, end in spans
            )
            for rank, spans in enumerate(of_ranks)
        )
        for way, of_ranks in ways.items()
    ]
    return f"Work and waiting, in milliseconds. {'. '.join(texts)}."


def _full(axes: Axes, row: int, start: float, end: float, rank: int) -> None:
    look = {"height": 0.66, "color": rank_colour(rank)}
    axes.barh(row, (end - start) * 1e3, left=start * 1e3, **look)


def _hatched(axes: Axes, row: int, start: float, end: float, rank: int) -> None:
    colour = rank_colour(rank)
    look = {"facecolor": tint(colour), "hatch": "///", "edgecolor": colour, "linewidth": 0}
    axes.barh(row, (end - start) * 1e3, left=start * 1e3, height=0.66, **look)
