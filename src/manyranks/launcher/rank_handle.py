"""One rank as the kernel sees it: its process, its pipes, and the evidence of its fate."""

import contextlib
import os
import pickle
import re
import time
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import psutil

from manyranks.diagnostics import exceptions
from manyranks.diagnostics.evidence import Evidence, Frame, Outcome, State
from manyranks.diagnostics.positions import megabytes
from manyranks.diagnostics.user_code import is_own
from manyranks.errors import TooLargeToSend
from manyranks.launcher import fork_server, framing, limits, parent_watchdog, rank_process
from manyranks.launcher.output import Printer, RankOutput
from manyranks.launcher.workarounds import WithoutMain

DRAIN_S = 0.5  # seconds at most to read what a rank wrote before it ended
EXEC_GRACE_S = 0.05  # seconds after which a program started by exec shows its command line
# What `faulthandler` writes: a line at a fatal signal; a head for each thread, then its frames,
# innermost first. A thread that runs no Python is not among them.
FATAL = "Fatal Python error: "
THREAD = re.compile(r"^(Current thread|Thread) 0x([0-9a-f]+) .*", flags=re.M)
FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$')
LARGE_RESULT_BYTES = 1 << 20  # of a result whose way to the kernel is followed
NO_MEMORY = "It takes {size}, but only {free} of memory are free here."
RECEIVING: set["RankHandle"] = set()  # large results, of all launches of this process


class RankHandle:
    """Starts a rank and follows it; `evidence` is what the diagnostics get to see."""

    def __init__(self, rank: int, printer: Printer):
        self.rank, self.printer = rank, printer
        self.evidence = Evidence(rank)
        self.dump = bytearray()  # what `faulthandler` wrote
        self.decoder = framing.Decoder(self._expect)
        self.text = RankOutput(self.rank, printer.line, printer.max_lines)
        self.evidence.last_lines = self.text.recent
        self.silent_since: float | None = None  # when `report` ended without an outcome
        self.may_exit = self.ended = False
        self.pipes: list[Connection] = []
        self.process: BaseProcess | None = None
        self.pid = 0  # before the process has started
        self.listener = 0  # the system's id of the thread that answers questions
        self.main_thread = 0  # Python's id of the thread that runs the worker

    @property
    def outcome(self) -> Outcome | None:
        """How the rank ended; None while it runs."""
        return self.evidence.outcome

    def start(self, config: rank_process.RankConfig) -> None:
        """Start the process; raises OSError or EOFError if the system refuses."""
        context: Any = fork_server.CONTEXT
        child_ends: list[Connection] = []
        try:
            for duplex in (True, False, False, False):
                kernel_end, child_end = context.Pipe(duplex)
                self.pipes.append(kernel_end)
                child_ends.append(child_end)
            # A one-way pipe is (read end, write end); the kernel writes to the watchdog pipe only.
            self.pipes[1], child_ends[1] = child_ends[1], self.pipes[1]
            self.report, self.watchdog_pipe, self.output, self.stacks = self.pipes
            name = WithoutMain(f"rank {self.rank}")
            process = context.Process(
                target=rank_process.main, args=(config, *child_ends), name=name
            )
            process._name = name  # multiprocessing makes a plain str of it
            self.process = process
            fork_server.start(process)
            self.pid = process.pid
        finally:
            for end in child_ends:
                end.close()

    @property
    def sources(self) -> list:
        """The open pipes and the process's sentinel, from which news may still come."""
        pipes = [p for p in (self.report, self.output, self.stacks) if not p.closed]
        return pipes if self.ended or not self.process else [*pipes, self.process.sentinel]

    @property
    def silent(self) -> bool:
        """True while a rank that was asked where it stands has not answered."""
        return self.outcome is None and self.evidence.record is None

    def read(self, source: Any) -> None:
        """Read whatever one of `sources` has."""
        if isinstance(source, int):  # the sentinel
            self._note_exit()
            return
        try:
            if source is self.output:
                self.text.feed(framing.read_available(source))
            elif source is self.stacks:
                self.dump += framing.read_available(source)
            else:
                self._read_report()
        except (EOFError, OSError):
            self._close_pipe(source)

    def _read_report(self) -> None:
        try:
            for head, body in self.decoder.read(self.report):
                self._handle_message(pickle.loads(head), body)
        except MemoryError:
            size, free = megabytes(self.evidence.size), megabytes(memory_for_results())
            error = exceptions.as_data(TooLargeToSend(NO_MEMORY.format(size=size, free=free)))
            self.evidence.outcome = Outcome(State.FAILED, time.monotonic(), error=error)
            self.report.close()

    def _expect(self, lengths: list[int]) -> None:
        """Note that a large result begins to arrive; raises MemoryError if it does not fit."""
        size = sum(lengths)
        if size < LARGE_RESULT_BYTES:
            return
        self.evidence.phase, self.evidence.size = State.SENDING, size
        if size + lengths[0] > memory_for_results():  # what the pickle itself holds is copied
            raise MemoryError
        RECEIVING.add(self)

    def _handle_message(self, message: dict, body: list) -> None:
        """Handle a message: a phase, an answer, or the outcome."""
        self.evidence.phase = message.get("phase", self.evidence.phase)
        self.evidence.record = message.get("record", self.evidence.record)
        self.evidence.stack = message.get("stack", self.evidence.stack)
        self.evidence.handled_error = message.get("handled_error", self.evidence.handled_error)
        self.evidence.thread_error = message.get("thread_error", self.evidence.thread_error)
        if "notice" in message:
            self.printer.notice(*message["notice"])
        self.listener = message.get("listener", self.listener)
        self.main_thread = message.get("main_thread", self.main_thread)
        if "ending" in message:
            self.evidence.outcome = Outcome(
                message["ending"],
                message["time"],
                value=body,
                error=message["error"],
                joined=message["joined"],
                exit_frames=message["exit_frames"],
            )

    def _close_pipe(self, pipe: Connection) -> None:
        pipe.close()
        if pipe is self.report:
            self.silent_since = time.monotonic()
            if self.outcome is None and (program := program_in(self.pid)):
                self._note_death(program=program)
        elif pipe is self.output:
            self.text.close()

    def _note_exit(self) -> None:
        """Note that the process has ended; it died, unless a message told otherwise."""
        self.ended = True
        self.drain()
        if self.outcome is None:
            self._note_death(returncode=self.returncode())

    def _note_death(self, **how: Any) -> None:
        when = self.silent_since or time.monotonic()
        stacks, crashed_thread = self._parse_dump()
        at_crash = any(is_own(file) for file, _, _ in stacks.get(crashed_thread, []))
        # Often the thread is gloo's own, and which line made it crash is not known.
        self.evidence.stack = stacks.get(crashed_thread if at_crash else self.main_thread, [])
        self.evidence.outcome = Outcome(State.DIED, when, at_crash=at_crash, **how)

    def _parse_dump(self) -> tuple[dict[int, list[Frame]], int]:
        """From the last dump: each thread's stack, and the thread that crashed, 0 if unknown."""
        _, fatal, text = self.dump.decode(errors="replace").rpartition(FATAL)
        _, *parts = THREAD.split(text)
        stacks, crashed_thread = {}, 0
        for head, number, frames in zip(*(parts[i::3] for i in range(3)), strict=True):
            matches = filter(None, map(FRAME.match, frames.splitlines()))
            stacks[int(number, 16)] = [(m["file"], int(m["line"]), m["name"]) for m in matches]
            if fatal and head == "Current thread":
                crashed_thread = int(number, 16)
        return stacks, crashed_thread

    def drain(self) -> None:
        """Read what the rank wrote before it ended; ignore what other processes still write."""
        end = time.monotonic() + DRAIN_S
        for pipe in (self.report, self.output, self.stacks):
            with contextlib.suppress(OSError, EOFError):
                while not pipe.closed and pipe.poll() and time.monotonic() < end:
                    self.read(pipe)

    def ask_position(self) -> None:
        """Ask the rank where it stands; its answer comes through `sources`."""
        self.evidence.record, self.evidence.stack, self.evidence.handled_error = None, [], None
        self.dump.clear()
        self._send(b"position?")

    def allow_exit(self) -> None:
        """Tell a rank that has returned to close its connections and end."""
        self.may_exit = True
        self._send(b"go")

    def _send(self, question: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):  # it has ended
            framing.send(self.report, question)

    def ask_by_signal(self) -> None:
        """Ask for the Python stacks by signal, for compiled code that holds the rank's GIL."""
        listens = self.evidence.phase is not State.STARTING  # until then, the signal would kill it
        if rank_process.STACKS_SIGNAL and listens and not self.ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, rank_process.STACKS_SIGNAL)

    def read_dumped_stack(self) -> None:
        """Note where a silent rank stands by the stacks that it wrote, if it did."""
        if not self.evidence.stack:
            self.evidence.stack = self._parse_dump()[0].get(self.main_thread, [])

    def returncode(self) -> int | None:
        """The exit status; None while the process lives."""
        with fork_server.PROCESS_LOCK:
            return self.process.exitcode if self.process else None

    def end(self) -> None:
        """Kill the rank and the rest of its process group. Safe to call twice."""
        for pipe in self.pipes[1:2]:
            with contextlib.suppress(OSError):
                pipe.close()  # the watchdog pipe
        if self.pid and self.ended:
            parent_watchdog.end_group(self.pid)
        elif self.pid:
            parent_watchdog.end_rank(self.pid)

    def close(self) -> None:
        """Reap the process that `end` has ended; release every descriptor."""
        process, self.process = self.process, None
        if process and self.pid:
            if not self.ended:
                wait([process.sentinel], 1.0)
            self.drain()
            self.text.close()
            fork_server.reap(process)
        self.ended = True
        RECEIVING.discard(self)
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.close()


def memory_for_results() -> int:
    """Bytes that are free, less what ranks have yet to send of results that are on their way."""
    pending = sum(handle.decoder.missing for handle in list(RECEIVING))
    return max(0, limits.free_memory() - pending)


def program_in(pid: int) -> str:
    """The command line in a rank's process if another program has replaced the rank; else ""."""
    server, end = fork_server.server_pid(), time.monotonic() + EXEC_GRACE_S
    if server is None:
        return ""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < end:
            if line := process.cmdline():  # empty for a moment, while the process ends or execs
                return "" if line == psutil.Process(server).cmdline() else " ".join(line)[:80]
            time.sleep(0.002)
    return ""
