"""Where chapter 02's steps and buckets go, on a network that the reader orders."""

from __future__ import annotations

import ddp_workbook
from ddp_workbook.chapters import distributed_data_parallel
from ddp_workbook.experiments.distributed_data_parallel.hooks import (
    CAP,
    MIB,
    Backward,
    backward_passes,
    layers,
)
from manyranks import figures
from manyranks.figures.palette import INK, part_look

WIDTH, DEPTH, BATCH = 512, 4, 512  # 3.2 MB of gradients; samples of both ranks together
NETWORK = "500 Mbit/s, 0.5 ms"
LINKS = ("100 Mbit/s, 0.5 ms", NETWORK, "1 Gbit/s, 0.5 ms", "Ethernet 10G", "NVLink 4")


def steps(network: str = NETWORK, batch: int = BATCH) -> ddp_workbook.Timeline:
    """The timeline of two epochs of chapter 02's program on two ranks."""
    return ddp_workbook.timeline(
        distributed_data_parallel.train,
        epochs=2,
        batch_size=batch,
        width=WIDTH,
        depth=DEPTH,
        ranks=2,
        steps=3,
        network=network,
    )


def play_step() -> ddp_workbook.Play:
    """One step on a network, with a batch of some samples."""
    return ddp_workbook.play(
        steps,
        step_plot,
        ranks=None,
        stills=[{"network": LINKS[0]}, {"network": LINKS[4]}, {"batch": 128}],
        network=ddp_workbook.slider("network", LINKS, NETWORK),
        batch=ddp_workbook.slider("samples of both ranks", (128, 256, BATCH, 768), BATCH),
    )


def step_plot(timeline: ddp_workbook.Timeline, **_: object) -> figures.Picture:
    """What each rank did in the last step that was looked at, with the sentence that matters."""
    picture = timeline.lanes(int(timeline.parts["step"].max()))
    lines = timeline.describe().replace("; ", ";\n")
    picture.figure.axes[0].set_title(lines, loc="left", size=11)
    picture.alt += f" {timeline.describe()}"
    return picture


# Its buckets


BUCKET_LINKS = ("300 Mbit/s, 0.5 ms", "1 Gbit/s, 0.5 ms", "1 Gbit/s, 5 ms", "Ethernet 10G")


def play_buckets() -> ddp_workbook.Play:
    """One backward on two ranks: a slider for the buckets, and one for the network."""
    return ddp_workbook.play(
        backward_passes,
        buckets_plot,
        stills=[
            {"cap": 25},
            {"cap": 0.1},
            {"cap": 0.1, "network": BUCKET_LINKS[2]},
            {"cap": 1, "network": BUCKET_LINKS[0]},
        ],
        cap=ddp_workbook.slider("a bucket is closed at, MiB", (0.1, 0.25, CAP, 1, 25), CAP),
        network=ddp_workbook.slider("network", BUCKET_LINKS, BUCKET_LINKS[1]),
    )


@figures.house_style
def buckets_plot(of_ranks: list[list[Backward]], **_: object) -> figures.Picture:
    """What rank 0 computes, and below it the way of each bucket, in the backward of median length.

    What travels during backward is hidden; what is left after it is exposed.
    """
    passes = sorted(of_ranks[0], key=lambda one: one.end)
    backward = passes[len(passes) // 2]
    last, end, count = backward.last_gradient, backward.end, len(backward.buckets)
    thick = 0.66 if count > 2 else 0.5
    figure = figures.Figure((figures.WIDTH, 1.5 + 0.36 * (count + 1)), layout="constrained")
    axes = figure.subplots()
    axes.barh(0, last, thick, color=part_look("compute")["facecolor"])
    names, words = ["backward"], []
    for place, bucket in enumerate(backward.buckets, start=1):
        inside = layers(one.name for one in backward.ready if one.bucket == place - 1)
        middle = min(max(bucket.start, last), bucket.end)
        for part, start, stop in (
            ("hidden", bucket.start, middle),
            ("exposed", middle, bucket.end),
        ):
            axes.barh(place, stop - start, thick, left=start, color=part_look(part)["facecolor"])
        names.append(f"bucket {place}: {inside}")
        words.append(
            f"bucket {place} ({inside}), {bucket.size / MIB:.2f} MiB, travels from "
            f"{bucket.start:.1f} to {bucket.end:.1f}"
        )
    axes.axvline(last, color=INK, linewidth=1.2)
    below = count + 0.75  # the bracket
    axes.annotate(
        "", (last, below), (end, below), arrowprops={"arrowstyle": "|-|, widthA=0.3, widthB=0.3"}
    )
    exposed = f"exposed: {figures.number(end - last)} ms"
    axes.text(last - end / 100, below, exposed, ha="right", va="center", weight="bold")
    axes.set_yticks(range(count + 1), names)
    axes.tick_params(axis="y", length=0)
    axes.set(xlim=(0, 1.01 * end), ylim=(count + 1.2, -0.6))
    axes.set_xlabel("milliseconds since backward began on rank 0")
    axes.set_title(
        f"{figures.number(end)} ms, and {figures.number(end - last)} of them after the last "
        "gradient"
    )
    handles = [
        figures.Patch(color=part_look(part)["facecolor"], label=label)
        for part, label in (
            ("compute", "computing"),
            ("hidden", "all-reduce, hidden"),
            ("exposed", "all-reduce, exposed"),
        )
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=3, handlelength=1.6)
    return figures.Picture(
        figure,
        f"One backward of rank 0, and the all-reduce of each bucket. In milliseconds: the last "
        f"gradient is ready at {last:.1f}; {'; '.join(words)}. What is still under way from "
        f"{last:.1f} to {end:.1f} is exposed, {figures.number(end - last)} ms.",
    )
