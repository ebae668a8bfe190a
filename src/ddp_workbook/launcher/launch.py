"""`launch`: run a worker on N ranks from a notebook cell, under the same contract as torchrun."""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from ddp_workbook.diagnostics import report
from ddp_workbook.errors import LaunchInterrupted, WorkbookError
from ddp_workbook.launcher import following, fork_server, preconditions, serialization
from ddp_workbook.launcher.output import Printer
from ddp_workbook.launcher.rank_environment import Surroundings, torchrun_line
from ddp_workbook.launcher.rank_handle import RankHandle
from ddp_workbook.launcher.rank_process import Orders
from ddp_workbook.launcher.rendezvous import loopback_store
from ddp_workbook.launcher.serialization import Call

LEAVE = 0.5  # seconds that a rank has to go by itself after its worker returned


def launch(
    worker: Callable, *args: Any, ranks: int = 2, timeout: float = 60, **kwargs: Any
) -> list:
    """Run `worker(*args, **kwargs)` on `ranks` processes; return their results in rank order.

    The contract is torchrun's: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and the rest are set, and
    the worker calls `init_process_group` itself. The worker must live in a file; arguments and
    results travel pickled, results of a GPU come back on the CPU. Each rank computes with
    cores // ranks threads, at least 1. After `timeout` seconds the ranks are stopped, and the error
    says where each stood.

    Raises:
        LaunchRefused: before anything starts, where the call cannot work.
        RankFailed: a rank raised, exited or was killed; the first one to fail is named.
        RanksHung: the ranks did not finish in time.
        LaunchInterrupted: the reader interrupted; a KeyboardInterrupt.
    """
    return run_ranks(Call(worker, args, kwargs), ranks, timeout)


def run_ranks(
    call: Call,
    ranks: int,
    timeout: float = 60,
    *,
    quiet: bool = False,
    threads: int | None = None,
    environment: dict[str, str] | None = None,
) -> list:
    """`launch` with more to choose.

    `quiet` shows no torchrun line, `threads` is the number of torch threads of each rank,
    `environment` holds extra environment variables for all ranks.
    """
    preconditions.leave_if_the_script_runs_again()
    preconditions.check(ranks, timeout, threads)
    parcel = serialization.pack_call(call)
    if not quiet and (line := torchrun_line(call.worker, ranks)):
        print(line, flush=True)
    printer = Printer(ranks)
    handles = [RankHandle(rank, printer) for rank in range(ranks)]
    try:
        store = loopback_store()
        around = Surroundings(ranks, store.port, threads, environment or {})
        _start(handles, around, parcel)
        following.follow(handles, timeout, printer)
        return [_unpack(handle) for handle in handles]
    except KeyboardInterrupt:
        raise LaunchInterrupted(_where_they_stand(handles, printer)) from None
    finally:
        _surely(_end, handles, printer)
        store = None  # an error that is kept keeps this frame, but must not keep socket and thread


def _start(handles: list[RankHandle], around: Surroundings, parcel: bytes) -> None:
    for handle in handles:
        orders = Orders(
            handle.rank, len(handles), parcel, around.threads, around.of(handle.rank), os.getcwd()
        )
        try:
            handle.start(orders)
        except (OSError, EOFError) as error:
            raise WorkbookError(
                f"Rank {handle.rank} could not be started: {error or type(error).__name__}.\n"
                "Is there room for another process, and does `import torch` work in a new Python?"
            ) from error


def _where_they_stand(handles: list[RankHandle], printer: Printer) -> str:
    """The page of an interrupt; a second interrupt skips it."""
    with contextlib.suppress(KeyboardInterrupt):
        started = [handle for handle in handles if handle.pid]
        following.collect_positions(started, printer)
        return report.positions_page(started, "Interrupted.")
    return "Interrupted."


def _unpack(handle: RankHandle) -> Any:
    try:
        return serialization.unpack(handle.outcome.value)
    except Exception as error:
        raise WorkbookError(
            f"The result of rank {handle.rank} cannot be read here: {error}.\n"
            "Return numbers, strings, lists, dicts, tensors, or objects of an importable class."
        ) from error


def _surely(step: Callable, *args: Any) -> None:
    """Run `step` to its end: an interrupt runs it again, and is raised where nothing else is."""
    already_raising = sys.exc_info()[0] is not None
    interrupt = None
    while True:
        try:
            step(*args)
            break
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt and not already_raising:
        raise interrupt


def _end(handles: list[RankHandle], printer: Printer) -> None:
    """Let ranks that have returned leave by themselves for a moment, then end all that is left."""
    if all(handle.outcome and handle.outcome.kind == "returned" for handle in handles):
        following.let_go(handles)
        end = time.monotonic() + LEAVE
        while any(not h.ended for h in handles) and time.monotonic() < end:
            following.read(handles, end - time.monotonic(), printer)
    for handle in handles:
        handle.end()
    for handle in handles:
        handle.close()
    fork_server.end_orphans()
    printer.flush()
