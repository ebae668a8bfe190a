"""How buckets fill during one real backward, and what of their all-reduces nothing hides."""

from __future__ import annotations

from collections.abc import Iterable

import ddp_workbook
from ddp_workbook import figures
from ddp_workbook.experiments.distributed_data_parallel.hooks import (
    Backward,
    Bucket,
    watched_steps,
)
from ddp_workbook.figures.palette import INK, series_look, tint

WIDTH, DEPTH = 256, 8
CAP = 0.5  # MiB
STEPS = 11  # the first has one bucket, the second makes the real ones; the median of the others
MIB = 2**20


def play_buckets() -> ddp_workbook.Play:
    """One backward on two ranks, with controls for the buckets and the model."""
    caps = (0.1, 0.25, CAP, 1, 25)
    return ddp_workbook.play(
        backwards,
        buckets,
        stills=[
            {"cap": 0.1},
            {"cap": 1},
            {"depth": 2},
            {"depth": 12},
            {"cap": 25},
        ],
        cap=ddp_workbook.slider("bucket limit, MiB", caps, CAP),
        depth=ddp_workbook.slider("hidden layers", range(1, 13), DEPTH),
    )


def backwards(cap: float = CAP, depth: int = DEPTH) -> list[Backward]:
    """A worker: each backward after the second.

    A bucket holds at most `cap` MiB and the gradient that fills it.
    """
    return watched_steps(STEPS, WIDTH, depth, bucket_cap_mb=cap)[2:]


@figures.drawn
def buckets(of_ranks: list[list[Backward]], **_: object) -> figures.Picture:
    """MiB of rank 0's gradients that are ready, against time; a band and a bar for each bucket.

    Shows the backward of median length.
    """
    backward = sorted(of_ranks[0], key=lambda one: one.end)[len(of_ranks[0]) // 2]
    figure = figures.Figure((figures.WIDTH, 3.9), layout="constrained")
    axes, last, bottom = figure.subplots(), backward.last_gradient, 0.0
    axes.axvspan(last, backward.end, color=tint(INK, 0.12), linewidth=0, zorder=0)
    axes.axvline(last, color=INK, linewidth=1.2)
    for place, sent in enumerate(backward.sent):
        _band(axes, backward, place, sent, bottom)
        bottom += sent.size / MIB
        axes.axhline(bottom, color=INK, linewidth=0.8, linestyle="--")
    words = {"va": "bottom", "size": 9}
    axes.text(last, bottom * 1.02, "last gradient ready ", ha="right", **words)
    exposed = f"exposed: {figures.number(backward.end - last)} ms "
    axes.text(backward.end, bottom * 1.11, exposed, ha="right", **words)
    axes.set(
        xlim=(0, backward.end),
        ylim=(0, bottom * 1.2),
        title="rank 0, one backward: gradients (line) and all-reduces (bars), "
        f"{figures.number(backward.end)} ms in all",
        xlabel="milliseconds since backward began",
        ylabel="MiB of gradients ready",
    )
    return figures.Picture(figure, _words(backward))


def _band(axes: figures.Axes, backward: Backward, place: int, sent: Bucket, bottom: float) -> None:
    """The steps in which one bucket fills, from `bottom` up, and the bar of its all-reduce."""
    inside = [one for one in backward.ready if one.bucket == place]
    times, heights, total = [inside[0].at], [bottom], bottom
    for one in inside:
        times += [one.at, one.at]
        heights += [total, total + one.size / MIB]
        total = heights[-1]
    leaves = max(sent.start, times[-1])
    look = series_look((5, 2, 4, 3)[place % 4])
    colour = look["facecolor"]
    axes.fill_between([*times, leaves], [*heights, total], bottom, facecolor=tint(colour, 0.4))
    axes.plot(times, heights, color=colour)
    middle, height = (bottom + total) / 2, (total - bottom) / 2
    axes.barh(middle, sent.end - sent.start, height, left=sent.start, **look)
    figures.beside(axes, middle, f"{place}: {layers(one.name for one in inside)}", size=9)


def layers(parameters: Iterable[str]) -> str:
    """The layers of these parameters: "output, hidden 6 to 7"."""
    found = {name.rpartition(".")[0] for name in parameters}
    hidden = sorted(int(name.partition(".")[2]) for name in found if "." in name)
    runs = [f"hidden {hidden[0]}"] if hidden else []
    if len(hidden) > 1:
        runs = [f"hidden {hidden[0]} to {hidden[-1]}"]
    return ", ".join(sorted(name for name in found if "." not in name) + runs)


def _words(backward: Backward) -> str:
    last = backward.last_gradient
    words = [
        f"bucket {place} ({layers(one.name for one in backward.ready if one.bucket == place)}), "
        f"{sent.size / MIB:.2f} MiB, travels from {sent.start:.1f} to {sent.end:.1f}"
        for place, sent in enumerate(backward.sent)
    ]
    return (
        "Rank 0's buckets fill one after the other during one backward, and each leaves when it is "
        f"full. In milliseconds: {'; '.join(words)}. The last gradient is ready at {last:.1f}; "
        f"what is still under way from there to {backward.end:.1f} is exposed, "
        f"{figures.number(backward.end - last)} ms."
    )
