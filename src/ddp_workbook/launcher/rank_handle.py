"""One rank as the kernel sees it: its process, its pipes, and what has become of it."""

import contextlib
import os
import pickle
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait

from ddp_workbook.launcher import fork_server, framing, rank_process, watchdog
from ddp_workbook.launcher.fork_server import warm_up
from ddp_workbook.launcher.output import Printer, RankOutput

__all__ = ["Outcome", "RankHandle", "warm_up"]
DRAIN = 0.5  # seconds at most for what a rank had written before it ended


@dataclass
class Outcome:
    """How a rank ended: it "returned", "raised" or "died".

    `value` holds the packed result, `error` what `rank_errors.describe` said, `returncode` the
    exit status of a rank that died, which may come a moment later.
    """

    kind: str
    time: float  # time.monotonic(), one clock for all processes of a machine
    value: bytes = b""
    error: dict = field(default_factory=dict)
    returncode: int | None = None

    @property
    def primary(self) -> bool:
        """False for an ending that another rank's ending explains."""
        return self.kind == "died" or (self.kind == "raised" and not self.error["lost_peer"])


class RankHandle:
    """Starts a rank and follows it; `outcome` is None while it runs.

    `started` is True once the rank's own code runs. `trail` and `stack` answer `ask_position`;
    `distress` holds what `faulthandler` wrote.
    """

    def __init__(self, rank: int, printer: Printer):
        self.rank = rank
        self.outcome: Outcome | None = None
        self.started = False
        self.trail: dict | None = None
        self.stack: list[tuple[str, int, str]] = []
        self.distress = bytearray()
        self.inbox = framing.Inbox()
        self.text = RankOutput(self.rank, printer.line, printer.most_lines)
        self.silent_since: float | None = None  # the end of `report` without an outcome
        self.may_go = self.ended = False
        self.pipes: list[Connection] = []
        self.process = None
        self.pid: int | None = None  # None before the process has started

    def start(self, orders: rank_process.Orders) -> None:
        """Start the process; raises OSError or EOFError where the system gives none."""
        context, theirs = fork_server.CONTEXT, []
        try:
            for duplex in (True, False, False, False):
                ours, their_end = context.Pipe(duplex)
                self.pipes.append(ours)
                theirs.append(their_end)
            # A one-way pipe is (to read, to write), and the kernel writes to the lifeline alone.
            self.pipes[1], theirs[1] = theirs[1], self.pipes[1]
            self.report, self.lifeline, self.output, self.alarm = self.pipes
            self.process = context.Process(
                target=rank_process.main, args=(orders, *theirs), name=f"rank {self.rank}"
            )
            fork_server.start(self.process)
            self.pid = self.process.pid
        finally:
            for end in theirs:
                end.close()

    @property
    def sources(self) -> list:
        """What may still bring news: open pipes, and the sentinel of the process."""
        pipes = [p for p in (self.report, self.output, self.alarm) if not p.closed]
        return pipes if self.ended else [*pipes, self.process.sentinel]

    @property
    def silent(self) -> bool:
        """True while a rank that was asked where it stands has not answered."""
        return self.outcome is None and self.trail is None

    def read(self, source: Connection | int) -> None:
        """Take what is there in one of `sources`."""
        if isinstance(source, int):  # the sentinel
            self._take_leave()
            return
        try:
            data = framing.some(source)
        except (EOFError, OSError):
            self._end_of(source)
            return
        if source is self.output:
            self.text.feed(data)
        elif source is self.alarm:
            self.distress += data
        else:
            for head, body in self.inbox.feed(data):
                self._hear(pickle.loads(head), body)

    def _hear(self, letter: dict, body: bytes) -> None:
        kind = letter.pop("kind")
        self.started = True
        self.trail = letter.pop("trail", self.trail)
        if kind == "position":
            self.stack = letter["stack"]
        elif kind == "returned":
            self.outcome = Outcome("returned", letter["time"], value=body)
        elif kind == "raised":
            self.outcome = Outcome("raised", letter.pop("time"), error=letter)

    def _end_of(self, pipe: Connection) -> None:
        pipe.close()
        if pipe is self.report:
            self.silent_since = time.monotonic()
        elif pipe is self.output:
            self.text.close()

    def _take_leave(self) -> None:
        """The process has ended; if no letter told how, it died."""
        self.ended = True
        self.drain()
        if self.outcome is None:
            when = self.silent_since or time.monotonic()
            self.outcome = Outcome("died", when, returncode=self.returncode())

    def drain(self) -> None:
        """Take what the rank wrote before it ended; what others go on writing there is left."""
        end = time.monotonic() + DRAIN
        for pipe in (self.report, self.output, self.alarm):
            with contextlib.suppress(OSError, EOFError):
                while not pipe.closed and pipe.poll() and time.monotonic() < end:
                    self.read(pipe)

    def ask_position(self) -> None:
        """Ask the rank where it stands; its answer comes through `sources`."""
        self.trail, self.stack = None, []
        self._send(b"position?")

    def let_go(self) -> None:
        """Have a rank that has returned close its connections and end."""
        self.may_go = True
        self._send(b"go")

    def _send(self, letter: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):  # it has ended
            framing.send(self.report, letter)

    def ask_by_signal(self) -> None:
        """Have the system ask for the Python stacks, where compiled code holds the rank's GIL."""
        if rank_process.STACKS_SIGNAL and not self.ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, rank_process.STACKS_SIGNAL)

    def returncode(self) -> int | None:
        """The exit status; None while the process lives."""
        with fork_server.PROCESSES:
            return self.process.exitcode

    def end(self) -> None:
        """Kill what is left of the rank and of its process group. Safe to call twice."""
        for pipe in self.pipes[1:2]:
            with contextlib.suppress(OSError):
                pipe.close()  # the lifeline
        if self.pid and self.ended:
            watchdog.end_group(self.pid)
        elif self.pid:
            watchdog.end_rank(self.pid)

    def close(self) -> None:
        """Take leave of the process that `end` has ended; release every descriptor."""
        process, self.process = self.process, None
        if process and self.pid:
            if not self.ended:
                wait([process.sentinel], 1.0)
            self.drain()
            self.text.close()
            fork_server.take_leave(process)
        self.ended = True
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.close()
