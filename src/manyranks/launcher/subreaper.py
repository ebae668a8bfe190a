"""Makes the fork server a child subreaper: it adopts and kills the orphans of dead ranks.

Only the fork server imports this, before its other preloads, to run `watch` there. A rank ends
itself when the kernel dies (see `parent_watchdog`), but children in sessions of their own do not.
"""

import atexit
import contextlib
import ctypes
import gc
import os
import signal
import sys
import time
import warnings
from pathlib import Path

import psutil

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
POLL_INTERVAL_S = 0.5  # between two looks at whether the kernel is still there


def watch(kernel: int) -> None:
    """Become the child subreaper of all descendants; end them and this process after `kernel`."""
    os.setpgid(0, 0)  # a kernel is killed, and interrupted, together with its process group
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")  # an orphan's
    server = os.getpid()

    def end_all() -> None:
        if os.getpid() == server:  # not in a rank, which inherits this handler
            end_children(server)

    def look(*_) -> None:
        if os.getpid() == server and os.getppid() != kernel:
            end_all()
            os._exit(0)  # whatever code the signal interrupted could swallow an exception

    def before_fork() -> None:
        if os.getpid() == server:
            gc.freeze()  # everything imported so far: collections in ranks would copy its pages

    def in_child() -> None:
        if os.getppid() == server:
            gc.enable()

    atexit.register(end_all)
    gc.disable()  # imports leave nothing to collect, and looking for it takes a tenth of their time
    os.register_at_fork(before=before_fork, after_in_child=in_child)
    # A timer, not a thread: a process with threads is not safe to fork. Forks inherit no timer.
    signal.signal(signal.SIGALRM, look)
    signal.siginterrupt(signal.SIGALRM, False)  # so that it makes no system call of an import fail
    signal.setitimer(signal.ITIMER_REAL, POLL_INTERVAL_S, POLL_INTERVAL_S)


def end_children(server: int, patience: float = 1.0) -> None:
    """Kill the children of `server`, and theirs as it adopts them, until none is left."""
    end = time.monotonic() + patience
    while (orphans := children(server)) and time.monotonic() < end:
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


def children(pid: int) -> list[int]:
    """Processes whose parent is `pid`."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # not Linux, or a kernel built without that file
        with contextlib.suppress(psutil.NoSuchProcess):
            return [child.pid for child in psutil.Process(pid).children()]
    return []


if any("multiprocessing.forkserver" in word for word in sys.orig_argv):
    watch(os.getppid())
