"""What a process has open, and which processes descend from it."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable

import psutil

from manyranks.launcher import fork_server

MARK = "DDP_WORKBOOK_BENCHMARK"  # this environment variable is inherited by all descendants


def marked_processes(mark: str) -> list[psutil.Process]:
    """Living processes that were started with MARK=mark, orphans included."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
        except psutil.Error:
            continue
    return processes


def traces() -> dict[str, int]:
    """Numbers of this process: descriptors, threads, temporary files, processes of its mark.

    The fork server's descriptors count as well: it outlives every launch.
    """
    here, server = psutil.Process(), fork_server.server_pid()
    of_server = psutil.Process(server).num_fds() if server else 0
    return {
        "descriptors": here.num_fds() + of_server,
        "threads": here.num_threads(),
        "files": count_files(os.environ["TMPDIR"]),
        "orphans": len(marked_processes(os.environ[MARK])),
    }


def count_files(folder: str) -> int:
    """Files and folders below `folder`, except the cache folder that torch makes for each user."""
    count = 0
    for _, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith("torchinductor_")]
        count += len(folders) + len(files)
    return count


def leaks(before: dict[str, int], patience: float = 2.0) -> dict[str, int]:
    """What has increased since `before`, after a moment for processes that are just ending."""
    end = time.monotonic() + patience
    while True:
        now = traces()
        more = {name: max(0, now[name] - before[name]) for name in before}
        if not any(more.values()) or time.monotonic() > end:
            return more
        time.sleep(0.05)


def wait_until(condition: Callable[[], object], seconds: float = 30.0) -> bool:
    """True as soon as `condition` holds, False if it does not in time.

    The time is less than the minute for which processes in tests sleep that must be ended. Asking
    takes half of it at most: what is waited for needs the processor, too.
    """
    end = time.monotonic() + seconds
    while True:
        start = time.monotonic()
        if (holds := bool(condition())) or start > end:
            return holds
        time.sleep(max(0.005, time.monotonic() - start))


def alive(pids: Iterable[int]) -> list[int]:
    """The pids that still run; zombies do not count."""
    running = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                running.append(pid)
    return running
