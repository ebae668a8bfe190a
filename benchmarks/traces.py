"""What a process has open, and which processes descend from it."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil

MARK = "DDP_WORKBOOK_BENCHMARK"  # this environment variable is inherited by all descendants


def marked(mark: str) -> list[psutil.Process]:
    """Living processes that were started with MARK=mark, however they were orphaned since."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def traces() -> dict[str, int]:
    """Numbers of this process: descriptors, threads, temporary files, processes of its mark."""
    here = psutil.Process()
    return {
        "descriptors": here.num_fds(),
        "threads": here.num_threads(),
        "files": count_files(os.environ["TMPDIR"]),
        "orphans": len(marked(os.environ[MARK])),
    }


def count_files(folder: str) -> int:
    """Files and folders below `folder`, but for the cache folder that torch makes once a user."""
    found = 0
    for _, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith("torchinductor_")]
        found += len(folders) + len(files)
    return found


def leaked(before: dict[str, int], patience: float = 2.0) -> dict[str, int]:
    """What there is more of than `before`, once a moment has passed for what is just ending."""
    end = time.monotonic() + patience
    while True:
        now = traces()
        more = {name: max(0, now[name] - before[name]) for name in before}
        if not any(more.values()) or time.monotonic() > end:
            return more
        time.sleep(0.05)


def wait_for(condition: Callable[[], object], seconds: float) -> bool:
    """True as soon as `condition` holds, False if it does not in time; asked every 2 ms."""
    end = time.monotonic() + seconds
    while not (held := bool(condition())) and time.monotonic() < end:
        time.sleep(0.002)
    return held


def alive(folder: Path) -> list[int]:
    """Of the pids that name the files in `folder`, those of processes that still run."""
    left = []
    for file in folder.iterdir():
        try:
            if psutil.Process(int(file.name)).status() != psutil.STATUS_ZOMBIE:
                left.append(int(file.name))
        except (psutil.NoSuchProcess, ValueError):  # ValueError: a file that is being written
            continue
    return left
