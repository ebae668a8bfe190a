"""What runs inside a rank: the same surroundings as under torchrun, one report home, no way to outlive the kernel.

The fork server preloads this module together with torch; it must not import a chapter or a cell,
so that an edited file is what runs next.
"""

import contextlib
import faulthandler
import importlib.machinery
import os
import pickle
import random
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import numpy
import psutil
import torch

from ddp_workbook.workbench import parcels, trail
from ddp_workbook.workbench.sources import is_library, is_own

CHUNK = 1 << 20
STACKS_SIGNAL = getattr(signal, "SIGUSR1", None)


@dataclass
class Orders:
    """What a rank is told: its place in the world, its surroundings, and the parcel with worker and arguments."""

    rank: int
    world_size: int
    parcel: bytes
    threads: int
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = "."


def main(orders: Orders, report: Connection, lifeline: Connection, output: Connection,
         distress: Connection) -> None:
    """Run the worker and send home what became of it; the process ends afterwards.

    `report` goes both ways: results home, the kernel's question for the trail here. `lifeline` is
    never written to: it ends when the kernel does. `output` takes stdout and stderr, `distress`
    takes the Python stacks at a crash or on request.
    """
    home = Home(report)
    die_with_the_kernel(lifeline)
    redirect_output(output)
    prepare_for_distress(distress)
    threading.Thread(target=answer_questions, args=(report, home), daemon=True).start()
    try:
        settle_in(orders)
        value = parcels.pack(work(orders.parcel))
        message = {"kind": "returned", "value": value}
    except BaseException as error:
        message = describe(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    home.send(message | {"time": time.monotonic(), "trail": trail.read()})


def work(parcel: bytes):
    """Unpack and call the worker; `sys.exit(0)` counts as returning None, as it does under torchrun."""
    worker, args, kwargs = parcels.unpack(parcel)
    file = getattr(sys.modules.get(getattr(worker, "__module__", "")), "__file__", None)
    sys.argv = [file or "worker"]  # a worker's argparse must not meet the kernel's own arguments
    try:
        return worker(*args, **kwargs)
    except SystemExit as leaving:
        if leaving.code in (None, 0):
            return None
        raise


class Home:
    """The way back to the kernel, shared by the worker's thread and the one that answers questions."""

    def __init__(self, connection: Connection):
        self.connection, self.lock = connection, threading.Lock()

    def send(self, message: dict) -> None:
        """Send in pieces, so that the kernel never blocks on one large result."""
        data = memoryview(pickle.dumps(message))
        with self.lock, contextlib.suppress(OSError):  # the kernel has gone: the lifeline ends us
            for start in range(0, len(data), CHUNK):
                self.connection.send_bytes(data[start:start + CHUNK])
            self.connection.send_bytes(b"")


def answer_questions(report: Connection, home: Home) -> None:
    """Send the flight recorder's trail whenever the kernel asks; gloo waits without the GIL, so this can run."""
    with contextlib.suppress(EOFError, OSError):
        while report.recv_bytes():
            home.send({"kind": "trail", "trail": trail.read()})


def die_with_the_kernel(lifeline: Connection) -> None:
    """End this rank and all that it started once the kernel has closed the lifeline, or has died."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # a group of its own: ended as a whole, and Ctrl-C goes to the kernel alone
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=wait_for_the_end, args=(lifeline,), daemon=True).start()
    if sys.platform == "linux":  # C code that never gives up the GIL would stop that thread: let the system do it
        import fcntl

        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpid())
        fcntl.fcntl(lifeline, 10, signal.SIGKILL)  # 10 is F_SETSIG, which the fcntl module does not name
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def wait_for_the_end(lifeline: Connection) -> None:
    """Wait for the end of the lifeline, then kill this rank's processes and the rank itself."""
    with contextlib.suppress(EOFError, OSError):
        lifeline.recv_bytes()
    end_process_tree(os.getpid())


def end_process_tree(pid: int) -> None:
    """Kill a rank with everything that it started: its children in other sessions too, then its group."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg") and os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))


def redirect_output(output: Connection) -> None:
    """Let file descriptors 1 and 2, and the streams on top of them, write to the kernel's pipe."""
    source = output.fileno()
    if os.name == "nt":
        import msvcrt

        source = msvcrt.open_osfhandle(source, os.O_APPEND)
    for target in (1, 2):
        os.dup2(source, target)
    # Line buffered: under PYTHONUNBUFFERED `print` would write a text and its newline apart.
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr


def prepare_for_distress(distress: Connection) -> None:
    """Have the Python stacks written at a fatal signal, and whenever the kernel asks by signal."""
    if os.name != "nt":
        faulthandler.enable(distress)
        faulthandler.register(STACKS_SIGNAL, distress, all_threads=True)


def settle_in(orders: Orders) -> None:
    """Give this process what a fresh one under torchrun would have: environment, seeds, threads, current sources."""
    os.environ.clear()
    os.environ.update(orders.environment)
    os.chdir(orders.folder)
    if orders.folder not in sys.path:
        sys.path.insert(0, orders.folder)
    random.seed()
    numpy.random.seed()  # forked ranks share NumPy's state, separate processes do not
    torch.set_num_threads(orders.threads)
    compile_sources_afresh()


def compile_sources_afresh() -> None:
    """Ignore .pyc files outside the libraries: their time stamp misses an edit within the same second."""
    stats = importlib.machinery.SourceFileLoader.path_stats

    def path_stats(self, path):
        if is_library(str(path)):
            return stats(self, path)
        raise OSError("compiled from source, see compile_sources_afresh")

    importlib.machinery.SourceFileLoader.path_stats = path_stats


def describe(error: BaseException) -> dict:
    """An exception as plain data, since the exception itself may not survive pickling."""
    pages = traceback.TracebackException.from_exception(error)
    shorten(pages)
    last = pages.stack[-1] if pages.stack else None
    return {
        "kind": "raised",
        "type": type(error).__name__,
        "module": type(error).__module__,
        "reason": "".join(pages.format_exception_only()).strip(),
        "traceback": "".join(pages.format()).rstrip(),
        "line": f"{last.filename}:{last.lineno}" if last else "",
        "lost_peer": any(map(lost_peer, chain(error))),
    }


def shorten(pages: traceback.TracebackException | None, depth: int = 20) -> None:
    """Keep the reader's own frames; where there are none, keep what is there."""
    if pages is None or depth == 0:
        return
    own = [frame for frame in pages.stack if is_own(frame.filename)]
    if own:
        pages.stack[:] = own
    shorten(pages.__cause__, depth - 1)
    shorten(pages.__context__, depth - 1)


def chain(error: BaseException | None):
    """The exception and all that it was raised from or during."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def lost_peer(error: BaseException) -> bool:
    """True if the error says no more than that another rank has gone."""
    words = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Connection refused",
             "recvValue failed", "sendBytes failed", "failed to recv, got 0 bytes", "Socket closed")
    return isinstance(error, (RuntimeError, ConnectionError)) and any(w in str(error) for w in words)
