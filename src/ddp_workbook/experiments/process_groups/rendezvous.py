"""How ranks meet: what they ask of the store, who is connected to whom, over which network."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
import psutil
import torch
import torch.distributed as dist

from manyranks import figures
from manyranks.errors import RankFailed
from manyranks.figures.palette import INK, pale_look, series_colour, tint
from manyranks.launcher.launch import launch
from manyranks.rank_colours import rank_colour


def connected_pairs(traces: Sequence[RendezvousTrace]) -> set[tuple[int, int]]:
    """The pairs of ranks between which there is a connection, the smaller rank first."""
    owner = {own: rank for rank, trace in enumerate(traces) for own, _ in trace.after}
    return {
        (min(rank, owner[peer_port]), max(rank, owner[peer_port]))
        for rank, trace in enumerate(traces)
        for _, peer_port in trace.after
        if peer_port in owner
    }


@figures.house_style
def connections_plot(pairs: Iterable[tuple[int, int]], ranks: int) -> figures.Picture:
    """Ranks on a circle, a line for each connection between two ranks, a dotted one to the store.

    `pairs` are the open connections, each listed once or from both ends.
    """
    joined = sorted({(min(pair), max(pair)) for pair in pairs})
    spots = _circle(ranks)
    lowest, highest = min(y for _, y in spots) - 0.25, max(y for _, y in spots) + 0.25
    axes = figures.sheet(5.4, 1.5 * (highest - lowest))
    axes.set(xlim=(-1.45, 2.1), ylim=(lowest, highest))
    for first, second in joined:
        axes.plot(
            *zip(spots[first], spots[second], strict=True), color=INK, linewidth=1.6, zorder=1
        )
    for spot in spots:
        axes.plot(*zip(spot, (1.75, 0), strict=True), color=INK, linestyle=(0, (1, 2)), lw=1.1)
    boxes = {"store": (1.75, 0.0)} | {f"rank {rank}": spot for rank, spot in enumerate(spots)}
    for place, (words, (x, y)) in enumerate(boxes.items()):
        corner, size, frame = (x - 0.26, y - 0.12), (0.52, 0.24), {"linewidth": 2, "zorder": 2}
        rank = place - 1 if place else None
        figures.box(axes, corner, size, words, rank, frame=frame, fontsize=11, zorder=3)
    lines = ", ".join(f"{first} and {second}" for first, second in joined)
    return figures.Picture(
        axes.figure,
        f"{ranks} ranks on a circle, with {len(joined)} lines, between the ranks {lines}. A dotted "
        "line joins each rank to the store.",
    )


def _circle(ranks: int) -> Sequence[tuple[float, float]]:
    """Positions of the ranks, clockwise from the top left; a single rank is in the middle."""
    if ranks == 1:
        return [(0.0, 0.0)]
    angles = [math.pi * (0.75 - 2 * rank / ranks) for rank in range(ranks)]
    return [(math.cos(angle), math.sin(angle)) for angle in angles]


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
    count = len(connections())
    dist.barrier()
    return {"sum": total.item(), "connections": count}


def init_methods_table(ways: Sequence[str], ranks: int = 4) -> pd.DataFrame:
    """A row for each way: what every rank found, and how many connections each of them had."""
    rows = []
    for way in ways:
        results = launch(join, way, ranks=ranks)
        row = {"init_method": way.partition("//")[0] + "//", "sum of the ranks": results[0]["sum"]}
        counts = {f"rank {rank}": result["connections"] for rank, result in enumerate(results)}
        rows.append(row | counts)
    return pd.DataFrame(rows)


# Which network


def interfaces() -> pd.DataFrame:
    """The network interfaces of this machine that have an IPv4 address and are up."""
    up = psutil.net_if_stats()
    return pd.DataFrame(
        {"interface": name, "address": address.address}
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family.name == "AF_INET" and up[name].isup
    )


def listen_address(interface: str) -> str:
    """Join a group by this interface; the address at which this rank then listens."""
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    dist.init_process_group("gloo")
    sockets = psutil.Process().net_connections("tcp")
    dist.barrier()
    return next(socket.laddr.ip for socket in sockets if socket.status == "LISTEN")


def gloo_interfaces_table(names: Sequence[str]) -> pd.DataFrame:
    """A row for each value of GLOO_SOCKET_IFNAME: where the ranks listen, or what gloo says."""

    def outcome(name: str) -> str:
        try:
            return f"listens at {launch(listen_address, name, ranks=2)[0]}"
        except RankFailed as failure:
            return failure.reason.partition("] ")[2].strip() or failure.reason

    return pd.DataFrame({"GLOO_SOCKET_IFNAME": name, "rank 0": outcome(name)} for name in names)


# What ranks ask of the store while they meet


ANSWERS = "the store answers"


class StoreEvent(NamedTuple):
    """One call on a store: `rank` called `what` (set, get or wait) on the value of rank `owner`."""

    rank: int
    what: str
    owner: int
    start: float  # seconds on a clock that all ranks share
    end: float


class RecordingStore(dist.Store):
    """A store in Python: it passes every call on to `store`, and records it with its times."""

    def __init__(self, store: dist.Store):
        super().__init__()
        self.store = store
        self.calls: list[tuple[str, str, float, float]] = []

    def record_call(self, what: str, key: str, call: Callable, *arguments: Any) -> Any:
        start = time.monotonic()  # a clock that all processes of a machine share
        result = call(*arguments)
        self.calls.append((what, key, start, time.monotonic()))
        return result

    def set(self, key, value):
        return self.record_call("set", key, self.store.set, key, value)

    def get(self, key):
        return self.record_call("get", key, self.store.get, key)

    def wait(self, keys, *limit):
        return self.record_call("wait", keys[0], self.store.wait, keys, *limit)


class RendezvousTrace(NamedTuple):
    """What one rank saw of a meeting: its calls of the store, and its TCP connections.

    Connections are pairs (own port, the other side's port): `before` the group was made, and
    `after` all ranks had joined it.
    """

    calls: list[tuple[str, str, float, float]]  # what, key, start and end
    before: list[tuple[int, int]]
    after: list[tuple[int, int]]


def record_rendezvous() -> RendezvousTrace:
    """Join the group over gloo, and record what this rank asks of the store."""
    store, rank, world_size = next(dist.rendezvous("env://"))
    before = connections()
    recording = RecordingStore(store)
    dist.init_process_group("gloo", store=recording, rank=rank, world_size=world_size)
    calls = list(recording.calls)
    dist.barrier()  # now all have connected
    after = connections()
    dist.barrier()  # no rank leaves while another one still counts
    return RendezvousTrace(calls, before, after)


def connections() -> list[tuple[int, int]]:
    """(own port, the other side's port) of each open TCP connection of this process."""
    sockets = psutil.Process().net_connections("tcp")
    return [
        (socket.laddr.port, socket.raddr.port)
        for socket in sockets
        if socket.status == "ESTABLISHED"
    ]


def events(traces: Sequence[RendezvousTrace]) -> Iterator[StoreEvent]:
    """What gloo asked of the store. The last part of a key is the rank whose address it is."""
    for rank, trace in enumerate(traces):
        for what, key, start, end in trace.calls:
            yield StoreEvent(rank, what, int(key.rsplit("/", 1)[-1]), start, end)


def calls_of(traces: RendezvousTrace) -> pd.DataFrame:
    """One rank's calls of the store, in order, and how long each took."""
    return pd.DataFrame(
        {"call": what, "key": key, "milliseconds": f"{1e3 * (end - start):.1f}"}
        for what, key, start, end in traces.calls
    )


# The picture


@figures.house_style
def store_plot(events: Iterable[StoreEvent]) -> figures.Picture:
    """A lane for each rank: when it wrote to the store, and how long it waited for the others.

    A dark vertical mark is the start of a `set`. A bar is a `get` or a `wait`. As long as the value
    that it asks for has not been written, it has the colour and the number of that value's rank;
    from then on, until the answer is there, it is grey. Time is in milliseconds since the first
    event.
    """
    events = sorted(events, key=lambda event: event.start)
    zero = events[0].start
    write_times = {event.owner: event.start for event in events if event.what == "set"}
    last = 1e3 * (max(event.end for event in events) - zero)
    rows: list[tuple] = []
    looks: dict[str, figures.FillStyle] = {ANSWERS: {"facecolor": tint(series_colour(0))}}
    for event in events:
        start, end = 1e3 * (event.start - zero), 1e3 * (event.end - zero)
        there = start + 1e3 * wait_seconds(event, write_times)
        lane, what = f"rank {event.rank}", f"rank {event.owner} has not written yet"
        if there > start:
            looks[what] = pale_look(rank_colour(event.owner))
            text = str(event.owner) if there - start > last / 25 else ""
            rows.append((lane, event.owner, what, start, there, text))
        if end > there and event.what != "set":
            rows.append((lane, None, ANSWERS, there, end, ""))
    table = pd.DataFrame(rows, columns=["lane", "rank", "what", "start", "end", "text"])
    keys = {"begins to write its address": {"facecolor": INK}, **dict(sorted(looks.items()))}
    unit = "milliseconds since the first of them began to write its address"
    order = [f"rank {rank}" for rank in sorted({event.rank for event in events})]
    looks_of = {"pale": looks.keys() - {ANSWERS}, "tinted": [ANSWERS]}
    picture = figures.lanes(table, unit, "Waits", order=order, by="rank", keys=keys, **looks_of)
    for event in events:
        if event.what == "set":
            row, write_ms = order.index(f"rank {event.rank}"), 1e3 * (event.start - zero)
            ends = row - 0.42, row + 0.42
            picture.axes.vlines(write_ms, *ends, color=INK, linewidth=3.5, zorder=3)
    picture.axes.set_xlim(-last / 100)  # room for the first mark
    picture.alt = _words(events, write_times)
    return picture


def _words(events: Sequence[StoreEvent], write_times: Mapping[int, float]) -> str:
    """For whom each rank waited longest."""
    order = ", ".join(map(str, sorted(write_times, key=lambda rank: write_times[rank])))
    parts = []
    for rank in sorted({event.rank for event in events}):
        own = [event for event in events if event.rank == rank]
        longest = max(own, key=lambda event: wait_seconds(event, write_times))
        if seconds := wait_seconds(longest, write_times):
            parts.append(f"rank {rank} for rank {longest.owner}, {1e3 * seconds:.0f} ms")
        else:
            parts.append(f"rank {rank} for nobody")
    return (
        "A lane for each rank, over time. Each rank writes its own address once and reads those of "
        f"all ranks. They wrote in the order {order}. The longest waits: {'; '.join(parts)}."
    )


def wait_seconds(event: StoreEvent, write_times: Mapping[int, float]) -> float:
    """Seconds of this call before its value was written; `write_times`: when each `set` began."""
    if event.what == "set" or event.owner not in write_times:
        return 0.0
    return max(0.0, min(event.end, write_times[event.owner]) - event.start)
