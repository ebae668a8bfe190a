"""Keeps ranks from outliving the kernel: each reads a pipe that closes when the kernel ends."""

import contextlib
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection

import psutil

F_SETSIG = 10  # linux/fcntl.h; Python's fcntl does not name it


def exit_with_kernel(watchdog_pipe: Connection) -> None:
    """End this rank and all that it started when the kernel closes `watchdog_pipe` or dies."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # to be killed as a whole; and Ctrl-C then reaches the kernel only
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked in the fork server
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # `subreaper` uses it in the fork server
    threading.Thread(target=_wait_for_kernel_exit, args=(watchdog_pipe,), daemon=True).start()
    if sys.platform == "linux":
        # Compiled code that holds the GIL would block that thread, so let the system send a signal.
        import fcntl

        fcntl.fcntl(watchdog_pipe, fcntl.F_SETOWN, -os.getpid())
        fcntl.fcntl(watchdog_pipe, F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(
            watchdog_pipe, fcntl.F_SETFL, fcntl.fcntl(watchdog_pipe, fcntl.F_GETFL) | os.O_ASYNC
        )


def _wait_for_kernel_exit(watchdog_pipe: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        watchdog_pipe.recv_bytes()
    end_rank(os.getpid())


def end_rank(pid: int) -> None:
    """Kill a rank and what it started: children in other sessions, then its process group."""
    if sys.platform != "linux":  # on Linux the fork server adopts such children, see `subreaper`
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    child.kill()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg") and os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))


def end_group(pid: int) -> None:
    """Kill the processes that an ended rank left in its process group."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
