"""The calls of a process group on one rank: when each of them is delivered."""

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch.distributed as dist
from torch.distributed.distributed_c10d import Work

from manyranks.network.emulated_work import EmulatedWork, Port
from manyranks.network.entry_times import EntryTimes
from manyranks.network.links import Network

FROM_ROOT, TO_ROOT = ("broadcast", "scatter"), ("reduce", "gather")
Post = Callable[[], tuple[list, Work]]  # starts gloo's call; its tensors, and its Work


class GroupCall(NamedTuple):
    """One call of a group: `number` counts them, `peer` is the root or the other side.

    `entry_time` is when this rank called it, in seconds of the clock.
    """

    kind: str
    bytes: int
    peer: int | None
    entry_time: float
    number: int = 0


class Group:
    """One process group. Its collectives are delivered in their order, one after the other."""

    def __init__(self, group: dist.ProcessGroup, network: Network, port: Port, folder: Path):
        self.network, self.port, self.folder = network, port, folder
        self.members, self.rank = dist.get_process_group_ranks(group), group.rank()
        self.name = group.group_name.replace(os.sep, "_")
        self.entries = EntryTimes(folder, self.name, len(self.members))
        self.post_lock, self.settle_lock = threading.Lock(), threading.Lock()
        self.numbers = itertools.count()
        self.pending: deque[Collective] = deque()
        self.channels: dict[tuple[int, int], Channel] = {}

    def collective(self, call: GroupCall, post: Post) -> EmulatedWork:
        """Start a collective."""
        with self.post_lock:
            call = call._replace(number=next(self.numbers))
            self.entries.enter(call.number, self.rank, call.entry_time)
            delivery = Collective(self, call, *post())
            self.pending.append(delivery)
        return delivery

    def send(self, call: GroupCall, post: Post) -> EmulatedWork:
        """Start to send to a peer."""
        with self.post_lock:
            seconds = self.seconds(call)
            start = self.port.reserve(call.entry_time, seconds, "out")
            self.channel(self.rank, call.peer).send(start)
            return Message(call, *post(), lambda _: start + seconds)

    def receive(self, call: GroupCall, post: Post) -> EmulatedWork:
        """Start to receive, from any source if the call has no peer."""
        with self.post_lock:
            channel = None if call.peer is None else self.channel(call.peer, self.rank)
            number = channel.next_receive() if channel else 0

            def end(work: Work) -> float:
                if channel:
                    start = channel.start_time(number)
                else:  # only now it is known who sent it
                    source_channel = self.channel(work._source_rank(), self.rank)
                    start = source_channel.start_time(source_channel.next_receive())
                return self.port.reserve(start, seconds := self.seconds(call), "in") + seconds

            return Message(call, *post(), end)

    def seconds(self, call: GroupCall) -> float:
        """What this call takes on the network."""
        members = self.members
        if call.kind in ("send", "recv"):
            peer = call.peer if call.peer is not None else (self.rank + 1) % len(members)
            members = [members[self.rank], members[peer]]
        return self.network.seconds(call.kind, call.bytes, members, dist.get_world_size())

    def settle(self, last: "Collective") -> None:
        """Settle this call and all before it."""
        with self.settle_lock:
            while not last.settled:
                first = self.pending.popleft()
                first.finish(partial(self._end, first.call))

    def _end(self, call: GroupCall) -> float:
        seconds = self.seconds(call)
        earliest = self.entries.last(call.number, self._needed_by(call))
        return self.port.reserve(earliest, seconds, "out", "in") + seconds

    def _needed_by(self, call: GroupCall) -> list[int] | slice:
        """The members that must have entered this call before it can end on this rank."""
        if call.kind in FROM_ROOT:
            return [self.rank, call.peer or 0]
        return [self.rank] if call.kind in TO_ROOT and call.peer != self.rank else slice(None)

    def channel(self, source: int, to: int | None) -> "Channel":
        """What goes from one member to another."""
        key = (source, to or 0)
        if key not in self.channels:
            self.channels[key] = Channel(self.folder, f"{self.name}.{source}-{to}")
        return self.channels[key]


class Collective(EmulatedWork):
    """A call of all members of a group."""

    def __init__(self, group: Group, call: GroupCall, tensors: list, work: Work):
        super().__init__(call.kind, call.bytes, call.entry_time, work, tensors)
        self.group, self.call = group, call

    def settle(self) -> None:
        """See EmulatedWork."""
        self.group.settle(self)


class Message(EmulatedWork):
    """A message from one rank to another; `end_time` says when, once gloo has ended."""

    def __init__(
        self, call: GroupCall, tensors: list, work: Work, end_time: Callable[[Work], float]
    ):
        super().__init__(call.kind, call.bytes, call.entry_time, work, tensors)
        self.end_time, self.settle_lock = end_time, threading.Lock()

    def settle(self) -> None:
        """See EmulatedWork."""
        with self.settle_lock:
            if not self.settled:
                self.finish(lambda: self.end_time(self.work))


class Channel:
    """The messages from one rank to another, in their order: when each was sent."""

    def __init__(self, folder: Path, name: str):
        self.starts = EntryTimes(folder, name, 1)
        self.sends, self.receives = itertools.count(), itertools.count()

    def send(self, start: float) -> None:
        """Note when the next message starts."""
        self.starts.enter(next(self.sends), 0, start)

    def next_receive(self) -> int:
        """The number of the next message that is received."""
        return next(self.receives)

    def start_time(self, number: int) -> float:
        """When the message of this number was sent."""
        return self.starts.last(number)
