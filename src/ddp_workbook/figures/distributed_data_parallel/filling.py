"""How DDP's buckets fill during a backward, and what of their all-reduces nothing hides."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import rank_hatch, series_colour, tint
from ddp_workbook.figures.style import INK, WIDTH, style

MB = 1e6
COLOURS = (5, 2, 4, 3)  # of the buckets, by series_colour; none of them is a rank's


@style()
def filling_plot(backward: Any, rank: int = 0) -> Figure:
    """Gradients that are ready, in MB, against time; a band for each bucket, and its all-reduce.

    `backward` is a Backward of `experiments.distributed_data_parallel.filling`.
    """
    figure = Figure((WIDTH, 3.9), layout="constrained")
    axes = figure.subplots()
    end = max(backward.end, max(sent.end for sent in backward.sent))
    last, top = backward.ready[-1].at, sum(sent.size for sent in backward.sent) / MB
    axes.axvspan(last, end, color=tint(INK, 0.12), linewidth=0, zorder=0)
    axes.axvline(last, color=INK, linewidth=1.2)
    bottom = 0.0
    for place, sent in enumerate(backward.sent):
        _band(axes, backward, sent, place, bottom)
        bottom += sent.size / MB
        axes.axhline(bottom, color=INK, linewidth=0.8, linestyle="--")
    words = {"va": "bottom", "size": 9}
    axes.text(last, top * 1.02, "last gradient ready ", ha="right", **words)
    axes.text(last, top * 1.02, " exposed", ha="left", **words)
    axes.set(
        xlim=(0, end),
        ylim=(0, top * 1.1),
        title=f"rank {rank}, one backward: gradients (steps) and all-reduces (bars)",
    )
    axes.set(xlabel="milliseconds since backward began", ylabel="MB of gradients ready")
    return figure


def alt_text_of_filling(backward: Any, rank: int = 0) -> str:
    """When each bucket leaves and when its all-reduce has ended, in words."""
    last = backward.ready[-1].at
    words = [
        f"bucket {place}, {sent.size / MB:.2f} MB, travels from {sent.start:.1f} to {sent.end:.1f}"
        for place, sent in enumerate(backward.sent)
    ]
    end = max(sent.end for sent in backward.sent)
    return (
        f"Rank {rank}'s buckets fill one after the other during one backward, and each leaves when "
        f"it is full. In milliseconds: {'; '.join(words)}. The last gradient is ready at "
        f"{last:.1f}; what is still under way from there to {end:.1f} is exposed."
    )


def _band(axes: Axes, backward: Any, sent: Any, place: int, bottom: float) -> None:
    """The steps in which one bucket fills, from `bottom` up, and the bar of its all-reduce."""
    inside = [ready for ready in backward.ready if ready.name in sent.names]
    times, heights, total = [inside[0].at], [bottom], bottom
    for ready in inside:
        times += [ready.at, ready.at]
        heights += [total, total + ready.size / MB]
        total = heights[-1]
    leaves = max(sent.start, times[-1])
    colour = series_colour(COLOURS[place % len(COLOURS)])
    axes.fill_between([*times, leaves], [*heights, total], bottom, facecolor=tint(colour, 0.4))
    axes.plot(times, heights, color=colour)
    height = total - bottom
    look = {"color": colour, "hatch": rank_hatch(place), "height": 0.5 * height}
    axes.barh(bottom + height / 2, sent.end - sent.start, left=sent.start, **look)
    words = {"va": "center", "size": 9, "transform": axes.get_yaxis_transform()}
    axes.text(1.01, bottom + height / 2, f"bucket {place}", **words)
