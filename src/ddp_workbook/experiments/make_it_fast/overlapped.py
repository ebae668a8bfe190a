"""Chapter 02's picture of a backward and its buckets, now on a network."""

from __future__ import annotations

import ddp_workbook
from ddp_workbook.experiments.distributed_data_parallel.filling import CAP, backwards, buckets

LINKS = ("300 Mbit/s, 0.5 ms", "1 Gbit/s, 0.5 ms", "1 Gbit/s, 5 ms", "Ethernet 10G")


def play_buckets() -> ddp_workbook.Play:
    """One backward on two ranks: a slider for the buckets, and one for the network."""
    return ddp_workbook.play(
        backwards,
        buckets,
        stills=[
            {"cap": 25},
            {"cap": 0.1},
            {"cap": 0.1, "network": LINKS[2]},
            {"cap": 1, "network": LINKS[0]},
        ],
        cap=ddp_workbook.slider("bucket limit, MiB", (0.1, 0.25, CAP, 1, 25), CAP),
        network=ddp_workbook.slider("network", LINKS, LINKS[1]),
    )
