"""`launch`: run a worker on N ranks from a notebook cell, under the same contract as torchrun."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from ddp_workbook.workbench import parcels, refusals, surroundings, verdicts
from ddp_workbook.workbench.errors import LaunchInterrupted, WorkbookError
from ddp_workbook.workbench.handle import PROCESSES, RankHandle
from ddp_workbook.workbench.output import Printer
from ddp_workbook.workbench.parcels import Call
from ddp_workbook.workbench.rank_process import Orders
from ddp_workbook.workbench.store import loopback_store

SETTLE = 0.1  # seconds to see who else failed
SETTLE_BLAME = 0.5  # seconds in which a rank that lost a peer may learn why the peer went
LEAVE = 0.5  # seconds that a rank has to go by itself after its worker returned
ANSWER = 0.6  # seconds that a hanging rank has to say where it stands


def launch(worker: Callable, *args: Any, ranks: int = 2, timeout: float = 60, **kwargs: Any) -> list:
    """Run `worker(*args, **kwargs)` on `ranks` processes; return their results in rank order.

    The contract is torchrun's: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and the rest are set, and the
    worker calls `init_process_group` itself. The worker must live in a file; arguments and results travel
    pickled, results of a GPU come back on the CPU. Each rank computes with cores // ranks threads, at least 1.
    After `timeout` seconds the ranks are stopped and the error says where each stood.

    Raises:
        LaunchRefused: before anything starts, where the call cannot work.
        RankFailed: a rank raised, exited or was killed; the first one to fail is named.
        RanksHung: the ranks did not finish in time.
        LaunchInterrupted: the reader interrupted; a KeyboardInterrupt.
    """
    return run_ranks(Call(worker, args, kwargs), ranks, timeout)


def run_ranks(call: Call, ranks: int, timeout: float = 60, *, quiet: bool = False,
              threads: int | None = None, environment: dict[str, str] | None = None) -> list:
    """`launch` with more to choose: no torchrun line (`quiet`), torch threads a rank, extra environment variables."""
    refusals.check(ranks, timeout, threads)
    parcel = parcels.pack_call(call)
    if not quiet:
        _show_torchrun_line(call.worker, ranks)
    store = loopback_store()
    surround = surroundings.Surroundings(ranks, store.port, threads, environment or {})
    printer = Printer()
    handles: list[RankHandle] = []
    try:
        for rank in range(ranks):
            orders = Orders(rank, ranks, parcel, surround.threads, surround.of(rank), os.getcwd())
            handles.append(RankHandle(orders, printer))
        _follow(handles, timeout, printer)
        return [_unpack(handle) for handle in handles]
    except KeyboardInterrupt:
        page = _where_they_stand(handles, "Interrupted.", printer)
        raise LaunchInterrupted(page) from None
    finally:
        _end(handles, printer)


def _follow(handles: list[RankHandle], timeout: float, printer: Printer) -> None:
    """Read the ranks until all have returned; raise at the first failure or when time is up."""
    deadline = time.monotonic() + timeout
    while any(handle.outcome is None for handle in handles):
        _read(handles, deadline - time.monotonic(), printer)
        failed = [handle for handle in handles if handle.outcome and handle.outcome.kind != "returned"]
        if failed:
            _settle(handles, printer)
            raise verdicts.failure(handles)
        if time.monotonic() >= deadline:
            _collect_positions(handles, printer)
            if any(handle.outcome is None for handle in handles):
                raise verdicts.hang(handles, timeout)


def _read(handles: list[RankHandle], patience: float, printer: Printer) -> None:
    """Wait for news from any rank, take it, and print the lines that are complete."""
    by_pipe = {pipe: handle for handle in handles for pipe in handle.sources}
    for pipe in wait(list(by_pipe), max(0.0, patience)):
        by_pipe[pipe].read(pipe)
    for handle in handles:
        if handle.outcome:
            handle.drain()  # what a rank printed before it ended comes before the verdict
    printer.flush()


def _settle(handles: list[RankHandle], printer: Printer) -> None:
    """Give the other ranks a moment: the first failure seen need not be the first that happened."""
    start = time.monotonic()
    while time.monotonic() - start < SETTLE_BLAME and any(handle.outcome is None for handle in handles):
        known = any(handle.outcome and handle.outcome.primary for handle in handles)
        if known and time.monotonic() - start >= SETTLE:
            break
        _read(handles, 0.02, printer)
    for handle in handles:
        if handle.outcome and handle.outcome.kind == "died":
            handle.outcome.returncode = handle.returncode()
            handle.drain()


def _collect_positions(handles: list[RankHandle], printer: Printer) -> None:
    """Ask every running rank where it stands, and wait a moment for the answers."""
    running = [handle for handle in handles if handle.outcome is None]
    for handle in running:
        handle.ask_for_trail()
    end = time.monotonic() + ANSWER
    while time.monotonic() < end and any(h.trail is None and h.outcome is None for h in running):
        _read(handles, 0.05, printer)
    _read(handles, 0.05, printer)


def _where_they_stand(handles: list[RankHandle], title: str, printer: Printer) -> str:
    """The page about unfinished ranks; a second interrupt skips it."""
    with contextlib.suppress(KeyboardInterrupt):
        _collect_positions(handles, printer)
        return verdicts.positions_page(handles, title)
    return title


def _unpack(handle: RankHandle) -> Any:
    try:
        return parcels.unpack(handle.outcome.value)
    except Exception as error:
        raise WorkbookError(f"The result of rank {handle.rank} cannot be read here: {error}.\nReturn plain "
                            "numbers, strings, lists, dicts or tensors, or objects of an importable class.") from error


def _end(handles: list[RankHandle], printer: Printer) -> None:
    """Let ranks that have returned leave by themselves for a moment, then end all that is left."""
    returned = [h for h in handles if h.outcome and h.outcome.kind == "returned"]
    if len(returned) == len(handles):
        _wait_for_leaving(returned)
    with PROCESSES:
        for handle in handles:
            handle.end()
    for handle in handles:
        handle.drain()
        handle.close()
    printer.flush()


def _wait_for_leaving(handles: list[RankHandle]) -> None:
    sentinels = {handle.process.sentinel for handle in handles}
    end = time.monotonic() + LEAVE
    while sentinels and time.monotonic() < end:
        sentinels -= set(wait(list(sentinels), max(0.0, end - time.monotonic())))


def _show_torchrun_line(worker: Callable, ranks: int) -> None:
    """Print the command that runs the same file under torchrun, where the file is made to be run."""
    for line in _torchrun_line(worker, ranks):
        print(line, flush=True)


def _torchrun_line(worker: Callable, ranks: int) -> Iterator[str]:
    module = sys.modules.get(getattr(worker, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if file and Path(file).is_file() and "__main__" in Path(file).read_text(encoding="utf-8", errors="ignore"):
        yield f"torchrun --standalone --nproc-per-node {ranks} {os.path.relpath(file)}"
