"""The process that ranks are forked from: torch is imported there once, not in each of them."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time

from manyranks.launcher import subreaper

METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
CONTEXT = multiprocessing.get_context(METHOD)
# What workers import sooner or later; none of it belongs to the reader. Optimizers need
# torch._dynamo, and so does the flight recorder when it looks up lines: with torch.distributed.fsdp
# these are 800 modules, 1.3 s of processor time in every rank. ZeroRedundancyOptimizer (0.3 s) is
# left to the workers that use it.
PRELOAD_MODULES = [
    subreaper.__name__,
    "torch",
    "torch._dynamo",
    "torch.utils.data",
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint",  # 0.07 s
    "torch.profiler._cupti_monitor",  # at the first step of any optimizer, also without a GPU
    "pandas",
    "safetensors.torch",  # where it is installed: `cpu_for_gpus` replaces its `load_file`
    "manyranks.launcher.rank_process",  # not imported here: the kernel can import torch later
]
# multiprocessing polls all children from whichever thread starts one: two threads at once would
# read the same exit status, and one of them would get 255.
PROCESS_LOCK = threading.Lock()
RUNNING_PIDS: set[int] = set()  # ranks of all launches of this process
SWEEP_S = 1.0  # seconds at most to wait for the end of what the ranks left behind


def start(process: multiprocessing.process.BaseProcess) -> None:
    """Start a rank's process, and before it the fork server if none is running."""
    from manyranks.launcher.workarounds import respect_without_main

    respect_without_main()
    warm_up()
    with PROCESS_LOCK:
        process.start()
        RUNNING_PIDS.add(process.pid or 0)


def reap(process: multiprocessing.process.BaseProcess) -> None:
    """Release what this process holds of a rank that has ended."""
    with PROCESS_LOCK, contextlib.suppress(ValueError):  # ValueError: it has not ended after all
        RUNNING_PIDS.discard(process.pid or 0)
        process.join(0)
        process.close()


def preload(*modules: str) -> None:
    """Make fork servers that start from now on import these modules as well.

    Name no module that a reader may edit: a rank would not see the edit.
    """
    PRELOAD_MODULES.extend(module for module in modules if module not in PRELOAD_MODULES)


def warm_up() -> None:
    """Start the fork server, which then imports torch, so that the first launch need not wait.

    Nothing here imports torch, so the fork server and its kernel can do that in parallel.
    """
    if METHOD == "forkserver":
        from multiprocessing import forkserver, resource_tracker

        CONTEXT.set_forkserver_preload(PRELOAD_MODULES)
        with PROCESS_LOCK:
            resource_tracker.ensure_running()  # started later, it would unblock interrupts again
            # Ctrl-C would end its `import torch`; a fork would lose threads of OpenMP and OpenBLAS.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            threads = os.environ.get("OMP_NUM_THREADS")
            os.environ["OMP_NUM_THREADS"] = "1"
            try:
                forkserver.ensure_running()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                if threads is None:
                    del os.environ["OMP_NUM_THREADS"]
                else:
                    os.environ["OMP_NUM_THREADS"] = threads


def forget_parent_server() -> None:
    """In a forked child: forget the fork server and the ranks, which belong to the parent."""
    from multiprocessing import forkserver, resource_tracker

    RUNNING_PIDS.clear()
    for server in (forkserver._forkserver, resource_tracker._resource_tracker):
        type(server).__init__(server)


if METHOD == "forkserver":
    os.register_at_fork(after_in_child=forget_parent_server)


def server_pid() -> int | None:
    """The fork server of this process; None before it has started, and inside a rank."""
    if METHOD != "forkserver":
        return None
    from multiprocessing import forkserver

    return getattr(forkserver._forkserver, "_forkserver_pid", None)


def end_orphans() -> None:
    """Kill processes that dead ranks left in sessions of their own, once no rank is running.

    The fork server adopts such processes (see `subreaper`, Linux only). Its own children, such as
    those of a reader who uses multiprocessing, are in its process group and stay alive.
    """
    server = server_pid()
    end = time.monotonic() + SWEEP_S
    with PROCESS_LOCK:  # a rank that starts now would look like an orphan
        while server and not RUNNING_PIDS and sys.platform == "linux" and time.monotonic() < end:
            orphans = [pid for pid in subreaper.children(server) if _group(pid) != _group(server)]
            if not orphans:
                break
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
