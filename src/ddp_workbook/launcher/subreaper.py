"""Makes the fork server a subreaper: it adopts the orphans of dead ranks, and kills them.

Imported by the fork server alone, before its other preloads, for what `watch` does there. A rank
dies with the kernel by itself (see `watchdog`); its children in sessions of their own do not.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import os
import signal
import sys
import time
import warnings
from pathlib import Path

import psutil

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
LOOK = 0.5  # seconds between two looks at whether the kernel is still there
# What workers import sooner or later (optimizers need torch._dynamo), and what takes as long as
# torch itself: 1 s. The first launch does not wait for it, later ones find it there.
LATER = ["torch._dynamo", "torch.utils.data", "torch.distributed.fsdp", "pandas"]
SERVES = "ddp_workbook.launcher.rank_process"  # the last module before ranks can be forked


def watch(kernel: int) -> None:
    """Become the child subreaper of all below; end them and this process after `kernel`."""
    os.setpgid(0, 0)  # a kernel is killed, and interrupted, together with its process group
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")  # an orphan's
    server, looks_while_it_serves = os.getpid(), 0

    def end_all() -> None:
        if os.getpid() == server:  # not in a rank, which inherits this
            end_children(server)

    def look(*_) -> None:
        nonlocal looks_while_it_serves
        if os.getpid() != server:
            return
        if os.getppid() != kernel:
            end_all()
            os._exit(0)  # an exception could be swallowed by whatever the signal came into
        looks_while_it_serves += hasattr(sys.modules.get(SERVES), "main")
        if looks_while_it_serves == 3:  # not at once: a first launch may be on its way
            import_the_rest()
        gc.freeze()  # what is imported by now: a rank's collections would copy all its pages

    atexit.register(end_all)
    # A timer and no thread: a process with threads is not safe to fork. Forks inherit no timer.
    signal.signal(signal.SIGALRM, look)
    signal.siginterrupt(signal.SIGALRM, False)  # no system call of an import fails for it
    signal.setitimer(signal.ITIMER_REAL, LOOK, LOOK)


def import_the_rest() -> None:
    """Import LATER; what is not installed is no matter."""
    for name in LATER:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def end_children(server: int, patience: float = 1.0) -> None:
    """Kill the children of `server`, and theirs as they become its own, until none is left."""
    end = time.monotonic() + patience
    while (left := children(server)) and time.monotonic() < end:
        for pid in left:
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
