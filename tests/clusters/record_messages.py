"""Record what torch says when something breaks between hosts: data/many_machines/messages.json.

    python -m tests.clusters.record_messages [--only NAME ...] [--other-torchrun PATH]

--other-torchrun: the torchrun of an environment with another torch, for mixed versions; without it
the file keeps what it has of them. Needs root, as all of tests/clusters; takes two minutes.
"""

import argparse
import json
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import torch

from tests.clusters import missing
from tests.clusters.breakages import BREAKAGES, Breakage
from tests.clusters.hosts import Hosts
from tests.clusters.torchruns import line

FILE = Path(__file__).parents[2] / "data" / "many_machines" / "messages.json"


def record(breakage: Breakage, version: str = torch.__version__) -> dict[str, object]:
    """Let it happen once, on two new hosts; what was typed, said and how long it took, by host."""
    with Hosts(2) as hosts:
        results = breakage.run(hosts)
    system = f"{len(hosts.names)} network namespaces on {platform.system()} {platform.machine()}"
    return {
        "name": breakage.name,
        "what": breakage.what,
        "command": {result.host: breakage.command_line(result) for result in results},
        "message": {result.host: breakage.message_of(result) for result in results},
        "key": breakage.key,
        "exit_code": {result.host: result.code for result in results},
        "seconds": {result.host: round(result.seconds, 1) for result in results},
        "torch": version,
        "recorded_on": f"{datetime.now(UTC):%Y-%m-%d}, {system}",
    }


def mixed_versions(other_torchrun: str) -> tuple[Breakage, str]:
    """One host's torch is another one; the breakage, and both versions."""
    python = str(Path(other_torchrun).with_name("python"))
    ask = [python, "-c", "import torch; print(torch.__version__)"]
    version = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    breakage = Breakage(
        name="mixed_versions",
        what="the nodes have different versions of torch",
        lines={0: line(), 1: line(torchrun=other_torchrun)},
        message=r"^(?:rank .*|\s*[\w.]*Error\b.*)",
        key="rank 1 of 2 on node2",
    )
    return breakage, f"{torch.__version__} on node1, {version} on node2"


def read_records() -> dict[str, dict]:
    """What the file has, by name."""
    rows = json.loads(FILE.read_text()) if FILE.exists() else []
    return {row["name"]: row for row in rows}


def main() -> None:
    """Record all breakages, or those that were named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[])
    parser.add_argument("--other-torchrun", metavar="PATH")
    options = parser.parse_args()
    if missing():
        parser.error(f"needs {missing()}")
    known = read_records()
    for breakage in BREAKAGES:
        if not options.only or breakage.name in options.only:
            print(breakage.name, flush=True)
            known[breakage.name] = record(breakage)
    if options.other_torchrun:
        known["mixed_versions"] = record(*mixed_versions(options.other_torchrun))
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps(list(known.values()), indent=2) + "\n")


if __name__ == "__main__":
    main()
