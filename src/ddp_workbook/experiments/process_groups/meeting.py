"""How ranks meet: what they ask of the store, who is connected to whom, and where they meet."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd
import psutil
import torch
import torch.distributed as dist

from ddp_workbook.errors import RankFailed
from ddp_workbook.figures.process_groups.store import StoreEvent
from ddp_workbook.launcher.launch import launch


class RecordingStore(dist.Store):
    """A store in Python: it passes every call on to `store`, and records it with its times."""

    def __init__(self, store: dist.Store):
        super().__init__()
        self.store, self.calls = store, []

    def recorded(self, what: str, key: str, call: Callable, *arguments: Any) -> Any:
        start = time.monotonic()  # a clock that all processes of a machine share
        result = call(*arguments)
        self.calls.append((what, key, start, time.monotonic()))
        return result

    def set(self, key, value):
        return self.recorded("set", key, self.store.set, key, value)

    def get(self, key):
        return self.recorded("get", key, self.store.get, key)

    def wait(self, keys, *limit):
        return self.recorded("wait", keys[0], self.store.wait, keys, *limit)


class Met(NamedTuple):
    """What one rank saw of a meeting: its calls of the store, and its TCP connections.

    Connections are pairs (own port, the other side's port): `before` the group was made, and
    `after` all ranks had joined it.
    """

    calls: list[tuple[str, str, float, float]]  # what, key, start and end
    before: list[tuple[int, int]]
    after: list[tuple[int, int]]


def meet() -> Met:
    """Join the group over gloo, and record what this rank asks of the store."""
    store, rank, world_size = next(dist.rendezvous("env://"))
    before = connections()
    recording = RecordingStore(store)
    dist.init_process_group("gloo", store=recording, rank=rank, world_size=world_size)
    calls = list(recording.calls)
    dist.barrier()  # now all have connected
    after = connections()
    dist.barrier()  # no rank leaves while another one still counts
    return Met(calls, before, after)


def connections() -> list[tuple[int, int]]:
    """(own port, the other side's port) of each open TCP connection of this process."""
    found = psutil.Process().net_connections("tcp")
    return [(one.laddr.port, one.raddr.port) for one in found if one.status == "ESTABLISHED"]


def pairs(met: Sequence[Met]) -> set[tuple[int, int]]:
    """The pairs of ranks between which there is a connection, the smaller rank first."""
    owner = {own: rank for rank, one in enumerate(met) for own, _ in one.after}
    return {
        tuple(sorted((rank, owner[other])))
        for rank, one in enumerate(met)
        for _, other in one.after
        if other in owner
    }


def events(met: Sequence[Met]) -> Iterator[StoreEvent]:
    """What gloo asked of the store. The last part of a key is the rank whose address it is."""
    for rank, one in enumerate(met):
        for what, key, start, end in one.calls:
            yield StoreEvent(rank, what, int(key.rsplit("/", 1)[-1]), start, end)


def calls_of(met: Met) -> pd.DataFrame:
    """One rank's calls of the store, in order, and how long each took."""
    return pd.DataFrame(
        {"call": what, "key": key, "milliseconds": f"{1e3 * (end - start):.1f}"}
        for what, key, start, end in met.calls
    )


# Where to meet


def join(init_method: str) -> dict[str, int]:
    """Meet there over gloo; the sum of all ranks, and how many TCP connections this rank has."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if init_method.startswith("tcp:"):
        # launch and torchrun keep a store and set this. Without it rank 0 keeps the store.
        del os.environ["TORCHELASTIC_USE_AGENT_STORE"]
    dist.init_process_group("gloo", init_method=init_method, rank=rank, world_size=world_size)
    total = torch.tensor([rank])
    dist.all_reduce(total)
    found = len(connections())
    dist.barrier()
    return {"sum": total.item(), "connections": found}


def ways_to_meet(ways: Sequence[str], ranks: int = 4) -> pd.DataFrame:
    """A row for each way: what every rank found, and how many connections each of them had."""
    rows = []
    for way in ways:
        met = launch(join, way, ranks=ranks)
        row = {"init_method": way.partition("//")[0] + "//", "sum of the ranks": met[0]["sum"]}
        counts = {f"rank {rank}": one["connections"] for rank, one in enumerate(met)}
        rows.append(row | counts)
    return pd.DataFrame(rows)


# Which network


def interfaces() -> pd.DataFrame:
    """The network interfaces of this machine that have an IPv4 address and are up."""
    up = psutil.net_if_stats()
    return pd.DataFrame(
        {"interface": name, "address": one.address}
        for name, addresses in psutil.net_if_addrs().items()
        for one in addresses
        if one.family.name == "AF_INET" and up[name].isup
    )


def listen_by(interface: str) -> str:
    """Join a group by this interface; the address at which this rank then listens."""
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    dist.init_process_group("gloo")
    found = psutil.Process().net_connections("tcp")
    dist.barrier()
    return next(one.laddr.ip for one in found if one.status == "LISTEN")


def gloo_by(names: Sequence[str]) -> pd.DataFrame:
    """A row for each value of GLOO_SOCKET_IFNAME: where the ranks listen, or what gloo says."""

    def outcome(name: str) -> str:
        try:
            return f"listens at {launch(listen_by, name, ranks=2)[0]}"
        except RankFailed as failed:
            return failed.reason.partition("] ")[2].strip() or failed.reason

    return pd.DataFrame({"GLOO_SOCKET_IFNAME": name, "rank 0": outcome(name)} for name in names)
