"""What `launch` refuses before it starts a process, in plain words."""

import math
import multiprocessing
import numbers
import os

from manyranks.errors import LaunchRefused
from manyranks.launcher.limits import free_memory

RANK_MEMORY_BYTES = 64 << 20  # bytes of its own that a rank with a group takes; it shares the rest
DESCRIPTORS_PER_RANK = 8  # open files that the kernel holds for one rank
SPARE_DESCRIPTORS = 64  # for the rest of the process, if nobody can tell what it has open


def check(ranks: int, timeout: float, threads: int | None = None) -> None:
    """Raise LaunchRefused if this number of ranks or threads, or this timeout, is impossible."""
    if isinstance(ranks, bool) or not isinstance(ranks, numbers.Integral) or ranks < 1:
        raise LaunchRefused(
            f"ranks={ranks!r}: the number of ranks must be a whole number, 1 or more."
        )
    if (
        isinstance(timeout, bool)
        or not isinstance(timeout, numbers.Real)
        or not math.isfinite(timeout)
        or timeout <= 0
    ):
        raise LaunchRefused(
            f"timeout={timeout!r}: the time limit must be a number of seconds above 0."
        )
    if threads is not None and (
        isinstance(threads, bool) or not isinstance(threads, int) or threads < 1
    ):
        raise LaunchRefused(
            f"threads={threads!r}: a rank needs a whole number of threads, 1 or more."
        )
    if multiprocessing.current_process().daemon:
        raise LaunchRefused(
            "A process of multiprocessing.Pool cannot start other processes. One of "
            "concurrent.futures.ProcessPoolExecutor can: launch from there."
        )
    check_folder()
    check_memory(ranks)
    check_descriptors(ranks)


def check_folder() -> None:
    """Raise LaunchRefused if the current folder has been removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        message = "The current folder no longer exists: change to another one (%cd)."
        raise LaunchRefused(message) from None


def check_memory(ranks: int) -> None:
    """Raise LaunchRefused if the ranks need more memory than is free."""
    free = free_memory()
    needed = ranks * RANK_MEMORY_BYTES
    if needed > free:
        raise LaunchRefused(
            f"ranks={ranks}: {ranks} ranks need about {needed / 2**30:,.1f} GiB, but "
            f"{free / 2**30:,.1f} GiB are free here. At most {free // RANK_MEMORY_BYTES} ranks fit."
        )


def check_descriptors(ranks: int) -> None:
    """Raise LaunchRefused if the ranks' pipes need more open files than this process may have."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = most_ranks(limit)
    if limit != resource.RLIM_INFINITY and ranks > most:
        raise LaunchRefused(
            f"ranks={ranks}: the pipes of {ranks} ranks need more open files than this process may "
            f"have ({limit}). At most {most} ranks fit; `ulimit -n` raises the limit."
        )


def most_ranks(limit: int) -> int:
    """How many ranks a process may start that may have so many open files."""
    try:
        in_use = len(os.listdir("/dev/fd")) + 16
    except OSError:
        in_use = 0
    return max(0, limit - max(SPARE_DESCRIPTORS, in_use)) // DESCRIPTORS_PER_RANK
