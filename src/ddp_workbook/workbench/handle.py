"""One rank as the kernel sees it: its process, its pipes, and what has become of it."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
from dataclasses import dataclass, field

from ddp_workbook.workbench import rank_process
from ddp_workbook.workbench.output import Printer, RankOutput

METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
CONTEXT = multiprocessing.get_context(METHOD)
PRELOADED = ["torch", "torch.distributed", "torch._dynamo", "torch.utils.data", "torch.distributed.fsdp",
             "pandas", rank_process.__name__]
CONTEXT.set_forkserver_preload(PRELOADED)
# multiprocessing polls all children from whichever thread starts one: two threads at once would
# read the same exit status, and one of them would get 255.
PROCESSES = threading.Lock()
READ_AT_ONCE = 1 << 16


@dataclass
class Outcome:
    """How a rank ended: "returned" (`value`), "raised" (`error`, see rank_process.describe) or "died" (`returncode`)."""

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
    """Starts a rank and follows it; `outcome` is None while it runs."""

    def __init__(self, orders: rank_process.Orders, printer: Printer):
        self.rank = orders.rank
        self.outcome: Outcome | None = None
        self.trail: dict | None = None
        self.stacks = bytearray()
        self.inbox = bytearray()
        self.reader = RankOutput(self.rank, printer.line)
        self.report, theirs = CONTEXT.Pipe(duplex=True)
        their_lifeline, self.lifeline = CONTEXT.Pipe(duplex=False)
        self.output, their_output = CONTEXT.Pipe(duplex=False)
        self.distress, their_distress = CONTEXT.Pipe(duplex=False)
        their_ends = (theirs, their_lifeline, their_output, their_distress)
        self.process = CONTEXT.Process(target=rank_process.main, args=(orders, *their_ends),
                                       name=f"rank {self.rank}", daemon=False)
        try:
            with PROCESSES:
                self.process.start()
        except BaseException:
            self._close_pipes()
            raise
        finally:
            for end in their_ends:
                end.close()

    @property
    def sources(self) -> list:
        """The pipes that may still have something to say."""
        return [pipe for pipe in (self.report, self.output, self.distress) if not pipe.closed]

    def read(self, pipe) -> None:
        """Take what is there in one of `sources`; the end of `report` without an outcome is a death."""
        try:
            if pipe is self.report:
                self._hear(self.report.recv_bytes())
            elif pipe is self.output:
                self.reader.feed(_some(pipe))
            else:
                self.stacks += _some(pipe)
        except (EOFError, OSError):
            pipe.close()
            if pipe is self.report and self.outcome is None:
                self.outcome = Outcome("died", time.monotonic())
            elif pipe is self.output:
                self.reader.close()

    def _hear(self, piece: bytes) -> None:
        if piece:
            self.inbox += piece
            return
        message = pickle.loads(self.inbox)
        self.inbox = bytearray()
        self.trail = message["trail"]
        if message["kind"] == "returned":
            self.outcome = Outcome("returned", message["time"], value=message["value"])
        elif message["kind"] == "raised":
            self.outcome = Outcome("raised", message["time"], error=message)

    def drain(self) -> None:
        """Take what the rank wrote before it ended, without waiting for more."""
        for pipe in self.sources:
            with contextlib.suppress(OSError, EOFError):
                while not pipe.closed and pipe.poll():
                    self.read(pipe)

    def ask_for_trail(self) -> None:
        """Ask the rank for its trail and its Python stacks; the answers come through `sources`."""
        self.trail = None
        with contextlib.suppress(OSError, ValueError):
            self.report.send_bytes(b"trail?")
        if rank_process.STACKS_SIGNAL and self.process.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, rank_process.STACKS_SIGNAL)

    def returncode(self, patience: float = 0.5) -> int | None:
        """The exit status, waiting for it up to `patience` seconds; None while the process lives."""
        with PROCESSES:
            self.process.join(patience)
            return self.process.exitcode

    def end(self) -> None:
        """Kill what is left of the rank and of all it started; close every pipe. Safe to call twice."""
        with contextlib.suppress(OSError):
            self.lifeline.close()
        pid = self.process.pid
        if pid is not None:
            if self.process.exitcode is None:
                rank_process.end_process_tree(pid)
            elif hasattr(os, "killpg"):  # the rank has gone; what it left in its group has not
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)

    def close(self) -> None:
        """Take leave of the ended process and release every descriptor."""
        self.returncode(patience=1.0)
        self.reader.close()
        self._close_pipes()
        with contextlib.suppress(ValueError), PROCESSES:
            self.process.close()

    def _close_pipes(self) -> None:
        for pipe in (self.report, self.lifeline, self.output, self.distress):
            with contextlib.suppress(OSError):
                pipe.close()


def _some(pipe) -> bytes:
    """Bytes that are there; the rank writes to the descriptor itself, so these are no messages (but on Windows)."""
    if os.name == "nt":
        return pipe.recv_bytes()
    data = os.read(pipe.fileno(), READ_AT_ONCE)
    if not data:
        raise EOFError
    return data


def warm_up() -> None:
    """Start the fork server in the background, so that the first launch does not wait for `import torch`."""
    if METHOD == "forkserver":
        from multiprocessing import forkserver

        forkserver.ensure_running()
