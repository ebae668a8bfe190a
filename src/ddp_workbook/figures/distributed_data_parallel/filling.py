"""How DDP's buckets fill during a backward, and what of their all-reduces nothing hides."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import rank_hatch, series_colour, tint
from ddp_workbook.figures.style import INK, WIDTH, label_rows, style

MB = 1e6
COLOURS = (5, 2, 4, 3)  # of the buckets, by series_colour; none of them is a rank's


@style()
def filling_plot(backward: Any, limit: float, rank: int = 0) -> Figure:
    """Above: MB of gradients in each bucket against time. Below: its all-reduce on the same axis.

    `backward` is a Backward of `experiments.distributed_data_parallel.filling`; `limit` is the size
    in bytes at which a bucket is full.
    """
    figure = Figure((WIDTH, 4.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.25, 1))
    end = max(backward.end, max(sent.end for sent in backward.sent))
    last = backward.ready[-1].at
    for place, sent in enumerate(backward.sent):
        _fill(above, backward, sent, place)
    above.axhline(limit / MB, color=INK, linestyle="--", linewidth=1)
    above.text(0, limit / MB, " full", va="bottom", size=9)
    above.set(ylabel="MB of gradients\nin the bucket", title=f"rank {rank}, one backward")
    above.set_ylim(0, 1.35 * max(sent.size for sent in backward.sent) / MB)
    _lanes(below, backward)
    for axes in (above, below):
        axes.axvline(last, color=INK, linewidth=1.2)
        axes.axvspan(last, end, color=tint(INK, 0.12), linewidth=0)
    above.annotate(
        "last gradient",
        (last, 0.9 * above.get_ylim()[1]),
        xytext=(-6, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        size=9,
    )
    below.text((last + end) / 2, -0.42, "exposed", ha="center", va="bottom", size=9)
    below.set(xlabel="milliseconds since backward began", xlim=(0, end * 1.02))
    return figure


def alt_text_of_filling(backward: Any, limit: float, rank: int = 0) -> str:
    """When each bucket is full and when its all-reduce has ended, in words."""
    last = backward.ready[-1].at
    words = [
        f"bucket {place}, {sent.size / MB:.2f} MB, travels from {sent.start:.1f} to {sent.end:.1f}"
        for place, sent in enumerate(backward.sent)
    ]
    end = max(sent.end for sent in backward.sent)
    return (
        f"Buckets of rank {rank} that fill one after the other in one backward; one is full at "
        f"{limit / MB:.2f} MB. In milliseconds: {'; '.join(words)}. The last gradient is ready at "
        f"{last:.1f}; from there to {end:.1f} the all-reduce is exposed."
    )


def _fill(axes: Axes, backward: Any, sent: Any, place: int) -> None:
    """The bytes in one bucket: a step for each of its gradients, until it leaves."""
    times, sizes, total = [], [], 0
    for ready in (one for one in backward.ready if one.name in sent.names):
        times += [ready.at, ready.at]
        sizes += [total / MB, (total + ready.size) / MB]
        total += ready.size
    times.append(max(sent.start, times[-1]))
    sizes.append(total / MB)
    colour = series_colour(COLOURS[place % len(COLOURS)])
    look = {"facecolor": tint(colour, 0.5), "edgecolor": colour, "linewidth": 1.6}
    axes.fill_between(times, sizes, step=None, **look)
    axes.text(times[-1], sizes[-1], f"bucket {place}", ha="center", va="bottom", size=9)


def _lanes(axes: Axes, backward: Any) -> None:
    last = backward.ready[-1].at
    axes.barh(0, last, color=series_colour(1), height=0.6)
    axes.text(last / 2, 0, "computes", ha="center", va="center", size=9)
    for place, sent in enumerate(backward.sent):
        look = {
            "color": series_colour(COLOURS[place % len(COLOURS)]),
            "hatch": rank_hatch(place),
        }
        axes.barh(place + 1, sent.end - sent.start, left=sent.start, height=0.6, **look)
    names = ["backward", *(f"all-reduce of bucket {n}" for n in range(len(backward.sent)))]
    label_rows(axes, names)
