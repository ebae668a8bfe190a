"""A backward pass on each rank: when gradients are ready, and when their buckets travel."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ddp_workbook.figures.palette import rank_colour, series_colour, tint
from ddp_workbook.figures.style import FAINT, INK, WIDTH, style


class Arrival(NamedTuple):
    """A gradient that is ready `ms` milliseconds after backward began; it goes into `bucket`."""

    name: str
    bucket: int
    ms: float


class Backward(NamedTuple):
    """One backward pass of one rank, in milliseconds since it began there.

    `ready` are its gradients in the order in which they came, `sent` a pair for each bucket: when
    its all-reduce was started, and when the averages were there.
    """

    ready: list[Arrival]
    sent: list[tuple[float, float]]

    @property
    def last_gradient(self) -> float:
        """When there was nothing left to compute, in ms."""
        return max(one.ms for one in self.ready)

    @property
    def end(self) -> float:
        """When the last all-reduce had ended, in ms."""
        return max(end for _, end in self.sent)


@style()
def backward_plot(of_ranks: Sequence[Backward]) -> Figure:
    """A panel a rank, a row a bucket: a dot for each gradient, a bar for the all-reduce.

    A line marks the last gradient; what is right of it, the exposed part, is shaded.
    """
    buckets = len(of_ranks[0].sent)
    height = 1.2 + (0.45 + 0.32 * buckets) * len(of_ranks)
    figure = Figure((WIDTH, height), layout="constrained")
    panels = figure.subplots(len(of_ranks), 1, sharex=True, squeeze=False)[:, 0]
    for rank, (axes, backward) in enumerate(zip(panels, of_ranks, strict=True)):
        _panel(axes, rank, backward)
    panels[0].set_xlim(0, 1.03 * max(backward.end for backward in of_ranks))
    panels[-1].set_xlabel("milliseconds since this rank's backward began")
    grey = series_colour(0)
    keys = [
        Line2D([], [], marker="o", linestyle="", color=grey, label="a gradient is ready"),
        Patch(facecolor=tint(grey, 0.35), edgecolor=grey, label="its bucket's all-reduce"),
        Line2D([], [], color=INK, linestyle=(0, (4, 2)), label="the last gradient"),
        Patch(facecolor=FAINT, label="exposed"),
    ]
    figure.legend(handles=keys, loc="outside upper left", ncols=4, handlelength=1.6)
    return figure


def _panel(axes: Axes, rank: int, backward: Backward) -> None:
    colour = rank_colour(rank)
    axes.axvspan(backward.last_gradient, backward.end, color=FAINT, linewidth=0, zorder=0)
    axes.axvline(backward.last_gradient, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
    for bucket, (start, end) in enumerate(backward.sent):
        look = {"facecolor": tint(colour, 0.35), "edgecolor": colour}
        axes.barh(bucket, end - start, left=start, height=0.6, zorder=2, **look)
    times = [one.ms for one in backward.ready]
    rows = [one.bucket for one in backward.ready]
    axes.plot(times, rows, "o", markersize=5, color=colour, markeredgecolor="white", zorder=3)
    axes.set_yticks(
        range(len(backward.sent)), [f"bucket {number}" for number in range(len(backward.sent))]
    )
    axes.set_ylim(len(backward.sent) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_title(f"rank {rank}", color=colour)


def alt_text_of_backward(of_ranks: Sequence[Backward]) -> str:
    """The same times in words."""
    words = []
    for rank, backward in enumerate(of_ranks):
        bars = ", ".join(
            f"bucket {number} travels from {start:.1f} to {end:.1f} ms"
            for number, (start, end) in enumerate(backward.sent)
        )
        exposed = backward.end - backward.last_gradient
        words.append(
            f"Rank {rank}: {len(backward.ready)} gradients become ready, the last one at "
            f"{backward.last_gradient:.1f} ms; {bars}; the exposed part is {exposed:.1f} ms"
        )
    return "A backward pass, with a row for each bucket. " + ". ".join(words) + "."
