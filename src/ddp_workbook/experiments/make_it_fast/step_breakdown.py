"""Where chapter 02's steps and buckets go, on a network that the reader orders."""

from __future__ import annotations

import ddp_workbook
from ddp_workbook.chapters import distributed_data_parallel
from ddp_workbook.experiments.distributed_data_parallel.hooks import (
    CAP,
    backward_passes,
    buckets_plot,
)
from manyranks import figures

WIDTH, DEPTH, BATCH = 512, 4, 512  # 3.2 MB of gradients; rows of both ranks together
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
    """One step on a network, with a batch of some rows."""
    return ddp_workbook.play(
        steps,
        step_plot,
        ranks=None,
        stills=[{"network": LINKS[0]}, {"network": LINKS[4]}, {"batch": 128}],
        network=ddp_workbook.slider("network", LINKS, NETWORK),
        batch=ddp_workbook.slider("rows of both ranks", (128, 256, BATCH, 768), BATCH),
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
        cap=ddp_workbook.slider("bucket limit, MiB", (0.1, 0.25, CAP, 1, 25), CAP),
        network=ddp_workbook.slider("network", BUCKET_LINKS, BUCKET_LINKS[1]),
    )
