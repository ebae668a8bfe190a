"""`launch`: run a worker on N ranks from a notebook cell, under the same contract as torchrun."""

import contextlib
import linecache
import multiprocessing.spawn
import os
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any, TextIO

from manyranks.diagnostics import failure_report, no_process_group, user_code
from manyranks.diagnostics.evidence import Evidence
from manyranks.errors import (
    LaunchInterrupted,
    LaunchRefused,
    MissingMainGuard,
    RankFailed,
    WorkbookError,
)
from manyranks.launcher import (
    fork_server,
    preconditions,
    rank_process,
    serialization,
    written_files,
)
from manyranks.launcher.calls import Call, call_of
from manyranks.launcher.hang_detection import HangDetector, HangLimits, connects, unfinished
from manyranks.launcher.interrupts import run_uninterrupted
from manyranks.launcher.output import Printer
from manyranks.launcher.rank_environment import NO_GPU, RankEnvironment, torchrun_line
from manyranks.launcher.rank_handle import RankHandle
from manyranks.launcher.rendezvous import loopback_store
from manyranks.launcher.scheduler_variables import SchedulerVariables
from manyranks.network.launch_network import prepare_network
from manyranks.network.links import Network

EXIT_GRACE_S = 2.0  # seconds for a rank to exit by itself after its worker returned
FAILURE_SETTLE_S = 0.1  # seconds to see which other ranks failed
ROOT_CAUSE_SETTLE_S = 0.5  # seconds to find out why the peer of a failed rank went away
CONNECTION_GRACE_S = 0.5  # seconds for which a rank that has returned keeps its connections open
POSITION_TIMEOUT_S = 0.3  # seconds for a rank to say where it stands, and again after a signal
LONG_POSITION_TIMEOUT_S = 2.0  # the same for launches in which no clock decides
MAX_WAIT_S = 3600.0  # seconds in one call; a longer timeout takes several
NO_GUARD = (
    "The worker lives in the script that launches it, so each rank runs that script again to find "
    'it. Put the lines that launch under `if __name__ == "__main__":`.'
)
STILL_BUSY = (
    "Rank {ranks}: threads or processes still ran {seconds:g} s after the worker had returned, and "
    "were stopped. Join them before you return, or what they write is lost."
)


def launch(
    worker: Callable | str | os.PathLike,
    *args: Any,
    ranks: int = 2,
    timeout: float = 60,
    network: str | Network | None = None,
    as_if_gpus: bool = True,
    **kwargs: Any,
) -> list:
    """Run `worker(*args, **kwargs)` on `ranks` processes; return their results in rank order.

    The contract is torchrun's: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and the rest are set, and
    the worker calls `init_process_group` itself. The worker is a function in a file, or the path of
    a script, which gets `args` as its command line; `launch("-m", "package.module")` runs a module
    as `python -m` does. Parameters called rank and world_size are filled in if the call leaves them
    open. Arguments and results are pickled; results on a GPU come
    back on the CPU. Each rank computes with cores // ranks threads, at least 1. After `timeout`
    seconds the ranks are stopped, and the error says where each stood. On a `network`, such as
    "1 Gbit/s, 0.5 ms", calls that communicate take as long as there; see `network.links.network`.
    Where the ranks see no GPU, what asks for one computes on the CPU over gloo, and one line says
    so; `as_if_gpus=False` lets it fail.

    Raises:
        LaunchRefused: the call cannot work; nothing was started.
        RankFailed: a rank raised, exited or was killed; the first one to fail is named.
        RanksHung: the ranks did not finish in time.
        LaunchInterrupted: the reader interrupted; it is a KeyboardInterrupt.
    """
    preconditions.check_folder()
    call = call_of(worker, args, kwargs, ranks)
    return run_ranks(call, ranks, timeout, network=network, as_if_gpus=as_if_gpus)


def run_ranks(
    call: Call,
    ranks: int,
    timeout: float = 60,
    *,
    quiet: bool = False,
    threads: int | None = None,
    environment: dict[str, str] | None = None,
    hang_limits: HangLimits | None = None,
    output: TextIO | None = None,
    cancelled: threading.Event | None = None,
    names: Sequence[str] | None = None,
    network: str | Network | None = None,
    as_if_gpus: int = False,
) -> list:
    """`launch` with more options.

    `quiet` shows no torchrun line; `threads` is the number of torch threads of each rank;
    `environment` holds extra environment variables for all ranks. `hang_limits` replaces `timeout`:
    the ranks are stopped when they are proven to hang, however busy the machine is, and
    HangUndecided is raised when the patience in these limits ends without a proof. The ranks' lines
    go to `output` instead of stdout. Several launches may run at once in threads: only the main
    thread sees an interrupt, and passes it on by setting `cancelled`. `names` replace "[rank 0]"
    and so on before the lines that the processes print. With a `network` the ranks communicate as
    on that one, over gloo, and see no GPU. `as_if_gpus` may be a number of GPUs that programs
    are told; True stands for one for each rank.
    """
    rank_process.raise_if_script_reimported()
    timeout = hang_limits.patience if hang_limits else timeout
    preconditions.check(ranks, timeout, threads)
    network_setup = prepare_network(network, ranks)
    hidden = NO_GPU if network else {}
    user_code.add_worker(call.file)
    call_bytes, needs_main = serialization.pack_call(call)
    written_files.report_changed_files()
    # Its path, or its module's name.
    data = multiprocessing.spawn.get_preparation_data("") if needs_main else {}
    main = {key: value for key, value in data.items() if key.startswith("init_main_from")}
    if not quiet and (line := torchrun_line(call, ranks)):
        print(line, flush=True)
    printer = Printer(ranks, output, names)
    handles = [RankHandle(rank, printer) for rank in range(ranks)]
    scheduler = SchedulerVariables(call.file if as_if_gpus else None)
    if sentence := scheduler.sentence():
        print(sentence, file=output, flush=True)
    try:
        store = loopback_store()
        environments = RankEnvironment(
            ranks,
            store.port,
            threads,
            (environment or {}) | network_setup.variables | hidden,
            scheduler,
        )
        gpus = ranks if as_if_gpus is True else as_if_gpus
        _start(handles, environments, call_bytes, main, gpus)
        watch = HangDetector(hang_limits) if hang_limits else None
        _follow(handles, timeout, printer, watch, cancelled)
        results = [_result(handle) for handle in handles]
    except KeyboardInterrupt:
        raise LaunchInterrupted(_describe_interrupt(handles, printer)) from None
    except RankFailed as failure:
        if failure.kind == MissingMainGuard.__name__:
            raise LaunchRefused(NO_GUARD) from None
        raise
    finally:
        run_uninterrupted(_end, handles, printer)
        network_setup.end()
        if call.script:
            linecache.cache.pop(call.script.path, None)  # see `scripts.cache_lines`
        store = None  # an error keeps this frame alive, but must not keep the socket and the thread
    text = call.script.text if call.script and ranks > 1 else ""
    if text and (sentence := no_process_group.explain_missing_group(_evidence(handles), text)):
        print(sentence, file=output)
    return results


def _result(handle: RankHandle) -> Any:
    """What the rank returned; the memory of its pickle is released."""
    end = handle.evidence.end
    parts, end.value = end.value, []
    try:
        return serialization.unpack(parts[0], parts[1:])
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}".rstrip(".: ")
        raise WorkbookError(
            f"The result of rank {handle.rank} cannot be read here: {text}.\n"
            "Return numbers, strings, lists, dicts, tensors, or objects of an importable class."
        ) from error


def _start(
    handles: list[RankHandle],
    environments: RankEnvironment,
    call_bytes: bytes,
    main: dict[str, str],
    gpus: int,
) -> None:
    for handle in handles:
        variables = environments.of(handle.rank)
        config = rank_process.RankConfig(
            call_bytes,
            environments.threads,
            variables,
            os.getcwd(),
            main,
            frozenset(user_code.WORKER_FOLDERS),
            gpus,
        )
        try:
            handle.start(config)
        except (OSError, EOFError) as error:
            raise WorkbookError(
                f"Rank {handle.rank} could not be started: {error or type(error).__name__}.\n"
                "Is there memory for another process, and does `import torch` work in a new Python?"
            ) from error


# Following the ranks until they end


def _follow(
    handles: list[RankHandle],
    timeout: float,
    printer: Printer,
    watch: HangDetector | None = None,
    cancelled: threading.Event | None = None,
) -> None:
    """Read the ranks until all have returned; raise at the first failure or when time is up.

    `watch` raises for ranks that are proven to hang; without such a proof, running out of time
    proves nothing.
    """
    deadline = time.monotonic() + timeout
    next_release_check = None  # when to check whether the ranks that have returned may exit
    while running := unfinished(handles):
        if cancelled and cancelled.is_set():
            raise KeyboardInterrupt
        until = min(deadline, next_release_check or deadline, watch.next if watch else deadline)
        _read(handles, until - time.monotonic(), printer)
        hang = watch and watch.look(handles, lambda: _ask_patiently(handles, printer))
        late = time.monotonic() >= deadline
        if late or hang:
            _collect_positions(handles, printer)
        _raise_failure(handles, printer)
        if hang and unfinished(handles) == running:
            raise failure_report.hang(_evidence(handles), hang.seconds, hang.proof, hang.rank)
        if late and unfinished(handles):
            raise (
                failure_report.too_busy(timeout)
                if watch
                else failure_report.hang(_evidence(handles), timeout)
            )
        next_release_check = _release_returned_ranks(handles, next_release_check, printer)
    _raise_failure(
        handles, printer
    )  # the last rank may have died while `_release_returned_ranks` asked it


def _raise_failure(handles: list[RankHandle], printer: Printer) -> None:
    if any(handle.evidence.failed for handle in handles):
        _settle(handles, printer)
        raise failure_report.failure(_evidence(handles))


def _evidence(handles: Sequence[RankHandle]) -> list[Evidence]:
    return [handle.evidence for handle in handles]


def _release_returned_ranks(
    handles: list[RankHandle], next_check: float | None, printer: Printer
) -> float | None:
    """Let ranks that have returned exit, unless another still connects; return when to look again.

    A rank that exits closes its connections. A rank that waits for it in a collective must notice
    that, but one that is still in init_process_group would fail through no fault of its own.
    """
    waiting = [h for h in handles if h.outcome and not h.may_exit]
    if not waiting or next_check is None:
        return time.monotonic() + CONNECTION_GRACE_S if waiting else None
    if time.monotonic() < next_check:
        return next_check
    running = [handle for handle in handles if handle.outcome is None]
    _ask(running, RankHandle.ask_position, printer)
    if any(connects(handle.evidence) for handle in running):
        return time.monotonic() + CONNECTION_GRACE_S
    for handle in waiting:
        handle.allow_exit()
    return None


def _read(handles: list[RankHandle], patience: float, printer: Printer) -> None:
    """Wait for news from any rank, take it, and print the lines that are complete."""
    by_source: dict[Any, RankHandle] = {s: handle for handle in handles for s in handle.sources}
    for source in wait(list(by_source), min(max(0.0, patience), MAX_WAIT_S)):
        by_source[source].read(source)
    printer.flush()


def _settle(handles: list[RankHandle], printer: Printer) -> None:
    """Wait a moment for the others: the first failure seen need not be the first that happened."""
    start = time.monotonic()
    while (elapsed := time.monotonic() - start) < ROOT_CAUSE_SETTLE_S:
        if all(handle.outcome for handle in handles):
            break
        if elapsed >= FAILURE_SETTLE_S and any(
            h.evidence.failed and h.evidence.end.primary for h in handles
        ):
            break
        _read(handles, 0.02, printer)
    for handle in handles:
        if handle.outcome:
            handle.drain()  # what it said last
    first = failure_report.first_to_fail(_evidence(handles)).end
    if first.error.get("waited") or first.returncode == failure_report.ABORT_CODE:
        _collect_positions(handles, printer)  # where are the ranks that it waited for?


def _collect_positions(handles: list[RankHandle], printer: Printer) -> None:
    """Ask every running rank where it stands: by message, and the silent ones by signal."""
    running = [handle for handle in handles if handle.outcome is None]
    _ask(running, RankHandle.ask_position, printer)
    silent = [handle for handle in running if handle.silent]
    _ask(silent, RankHandle.ask_by_signal, printer)
    for handle in silent:
        handle.read_dumped_stack()


def _ask_patiently(handles: list[RankHandle], printer: Printer) -> None:
    """Ask the unfinished ranks where they stand, and wait as long as a busy machine needs."""
    ready = [handle for handle in unfinished(handles) if handle.listener]
    _ask(ready, RankHandle.ask_position, printer, LONG_POSITION_TIMEOUT_S)


def _ask(
    handles: list[RankHandle], ask: Callable, printer: Printer, patience: float = POSITION_TIMEOUT_S
) -> None:
    for handle in handles:
        ask(handle)
    end = time.monotonic() + patience
    while time.monotonic() < end and any(handle.silent for handle in handles):
        _read(handles, 0.02, printer)


def _describe_interrupt(handles: list[RankHandle], printer: Printer) -> str:
    """The report after an interrupt; a second interrupt skips it."""
    with contextlib.suppress(KeyboardInterrupt):
        started = [handle for handle in handles if handle.pid]
        _collect_positions(started, printer)
        return failure_report.positions_page(_evidence(started), "Interrupted.")
    return "Interrupted."


# Ending them


def _end(handles: list[RankHandle], printer: Printer) -> None:
    """Give ranks that have returned a moment to exit, then kill whatever is left."""
    if all(handle.evidence.returned for handle in handles):
        for handle in handles:
            handle.allow_exit()
        end = time.monotonic() + EXIT_GRACE_S
        while any(not h.ended for h in handles) and time.monotonic() < end:
            _read(handles, end - time.monotonic(), printer)
        if busy := [str(handle.rank) for handle in handles if not handle.ended]:
            print(STILL_BUSY.format(ranks=", ".join(busy), seconds=EXIT_GRACE_S), file=printer.file)
    for handle in handles:
        handle.end()
    for handle in handles:
        handle.close()
    fork_server.end_orphans()
    printer.flush()
