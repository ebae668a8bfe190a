"""Follows ranks to their ends: until all have returned, one has failed, or time is up."""

import time
from multiprocessing.connection import wait

from ddp_workbook.diagnostics import report
from ddp_workbook.launcher.output import Printer
from ddp_workbook.launcher.rank_handle import RankHandle

SETTLE = 0.1  # seconds to see who else failed
SETTLE_BLAME = 0.5  # seconds in which a rank that lost a peer may learn why the peer went
LINGER = 0.5  # seconds that a rank which has returned keeps its connections for the others
ANSWER = 0.3  # seconds that a rank has to say where it stands, and again after a signal
LONGEST_WAIT = 3600.0  # seconds in one call; a longer timeout is waited for in several
CONNECTING = {"init_process_group", "new_group", "settle_in", "unpack"}  # functions on the stack


def follow(handles: list[RankHandle], timeout: float, printer: Printer) -> None:
    """Read the ranks until all have returned; raise at the first failure or when time is up."""
    deadline = time.monotonic() + timeout
    look_after = None  # when to see whether the ranks that have returned may go
    while any(handle.outcome is None for handle in handles):
        until = min(deadline, look_after or deadline)
        read(handles, until - time.monotonic(), printer)
        if any(handle.outcome and handle.outcome.kind != "returned" for handle in handles):
            _settle(handles, printer)
            raise report.failure(handles)
        if time.monotonic() >= deadline:
            collect_positions(handles, printer)
            if any(handle.outcome is None for handle in handles):
                raise report.hang(handles, timeout)
        look_after = _look_after(handles, look_after, printer)


def _look_after(handles: list[RankHandle], planned: float | None, printer: Printer) -> float | None:
    """Let ranks that have returned go, unless another still connects to them; when to look again.

    A rank that ends closes its connections. One that waits for it in a collective must learn so,
    but one that is still in init_process_group would fail without any fault.
    """
    waiting = [h for h in handles if h.outcome and not h.may_go]
    if not waiting or planned is None:
        return time.monotonic() + LINGER if waiting else None
    if time.monotonic() < planned:
        return planned
    running = [handle for handle in handles if handle.outcome is None]
    _ask(running, RankHandle.ask_position, printer)
    if any(CONNECTING & {name for _, _, name in handle.stack} for handle in running):
        return time.monotonic() + LINGER
    let_go(waiting)
    return None


def let_go(handles: list[RankHandle]) -> None:
    """Have ranks that have returned leave."""
    for handle in handles:
        handle.let_go()


def read(handles: list[RankHandle], patience: float, printer: Printer) -> None:
    """Wait for news from any rank, take it, and print the lines that are complete."""
    by_source = {source: handle for handle in handles for source in handle.sources}
    for source in wait(list(by_source), min(max(0.0, patience), LONGEST_WAIT)):
        by_source[source].read(source)
    printer.flush()


def _settle(handles: list[RankHandle], printer: Printer) -> None:
    """Give the others a moment: the first failure seen need not be the first that happened."""
    start = time.monotonic()
    while (waited := time.monotonic() - start) < SETTLE_BLAME:
        if all(handle.outcome for handle in handles):
            break
        if waited >= SETTLE and any(h.outcome and h.outcome.primary for h in handles):
            break
        read(handles, 0.02, printer)
    if report.first_to_fail(handles).outcome.error.get("waited"):
        collect_positions(handles, printer)  # where are those for whom it waited?


def collect_positions(handles: list[RankHandle], printer: Printer) -> None:
    """Have every running rank say where it stands: by letter, the silent ones by signal."""
    running = [handle for handle in handles if handle.outcome is None]
    _ask(running, RankHandle.ask_position, printer)
    _ask([h for h in running if h.silent], RankHandle.ask_by_signal, printer)


def _ask(handles: list[RankHandle], ask, printer: Printer) -> None:
    for handle in handles:
        ask(handle)
    end = time.monotonic() + ANSWER
    while time.monotonic() < end and any(handle.silent for handle in handles):
        read(handles, 0.02, printer)
