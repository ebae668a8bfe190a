"""Record steps on shaped links beside a network to order: data/make_it_fast/shaped_links.json.

    python -m tests.clusters.record_network

Needs root, as all of tests/clusters; takes two minutes, in which nothing else should run.
"""

import json
import platform
from datetime import UTC, datetime
from pathlib import Path

import torch

from ddp_workbook.experiments.many_machines.costs import Workload, slowest_ranks, timings_of_rank
from manyranks.launcher.calls import call_of
from manyranks.launcher.launch import run_ranks
from manyranks.network.links import Network
from tests.clusters import missing
from tests.clusters.hosts import Hosts
from tests.clusters.shaped_ranks import MBIT, Form, Ranks

FILE = Path(__file__).parents[2] / "data" / "make_it_fast" / "shaped_links.json"
HEADERS = 1.05  # bytes on a real link for each byte of data: TCP, IP, acknowledgements
LATENCY = 1e-4
MBITS, CAPS = (100, 300, 1000), (1, 4, 25)


def form(cap: float) -> Form:
    """13 MB of gradients; a step that computes for a quarter of a second."""
    return Form(Workload(1024, 4, cap, rows=(1024,), sizes=()), (), (), rounds=6, alone=False)


def steps(cap: float) -> list[dict]:
    """For each bandwidth the seconds of a step on two hosts, and on the network to order."""
    rows = []
    with Hosts(2) as hosts, Ranks(hosts, form(cap)) as ranks:
        for mbit in MBITS:
            real = ranks.measure(mbit, "step", "compute").set_index("part")["seconds"]
            ordered = Network(mbit * MBIT / HEADERS, LATENCY)
            call = call_of(timings_of_rank, (form(cap).work, 6, ("step",)), {}, 2)
            result = run_ranks(call, 2, 240, quiet=True, threads=1, network=ordered)
            rows.append(
                {
                    "Mbit/s": mbit,
                    "bucket_cap_mb": cap,
                    "compute": round(float(real["compute"]), 4),
                    "shaped": round(float(real["step"]), 4),
                    "ordered": round(float(slowest_ranks(result)["seconds"].min()), 4),
                }
            )
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Record all of them."""
    if missing():
        raise SystemExit(f"needs {missing()}")
    where = f"{platform.system()} {platform.machine()}, 2 cores, torch {torch.__version__}"
    content = {
        "recorded_on": f"{datetime.now(UTC):%Y-%m-%d}, {where}",
        "what": "seconds of a DDP step on 2 ranks with 13 MB of gradients, the fastest of 6",
        "shaped": "two network namespaces, tc tbf",
        "ordered": f"launch(network=...): the rate / {HEADERS}, {LATENCY:g} s a step of the ring",
        "steps": [row for cap in CAPS for row in steps(cap)],
    }
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
