"""Chapter 05: latency and bandwidth of the links between GPUs, with their sources."""

import pandas as pd

from ddp_workbook.planning.hardware import BETWEEN, GB, INSIDE, MICROSECOND


def table() -> pd.DataFrame:
    """A row a link: where it is, GB/s of one direction, latency, knee, and the bandwidth's source.

    The knee is the size at which latency and bytes cost the same, as for one message.
    """
    rows = [
        {
            "link": link.name,
            "between": where,
            "GB/s": f"{link.bytes_per_second / GB:g}",
            "latency in µs": f"{link.latency / MICROSECOND:g}",
            "knee in KiB": round(link.bytes_per_second * link.latency / 2**10),
            "source of the bandwidth": link.source,
        }
        for where, links in (("GPUs of a node", INSIDE), ("nodes", BETWEEN))
        for link in links
    ]
    return pd.DataFrame(rows)
