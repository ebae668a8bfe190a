"""What runs inside a rank: the same surroundings as under torchrun, one report home.

The fork server preloads this module together with torch; it must not import a chapter or a cell,
so that an edited file is what runs next.
"""

import atexit
import contextlib
import faulthandler
import importlib.machinery
import multiprocessing.util
import os
import pickle
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy
import torch
import torch.distributed as dist

from ddp_workbook.diagnostics import exceptions, flight_recorder
from ddp_workbook.diagnostics.user_code import is_library
from ddp_workbook.launcher import framing, serialization, workarounds
from ddp_workbook.launcher.watchdog import die_with_the_kernel

STACKS_SIGNAL = getattr(signal, "SIGUSR1", None)


@dataclass
class Orders:
    """What a rank is told: its place in the world, its surroundings, and the parcel to unpack."""

    rank: int
    world_size: int
    parcel: bytes  # worker and arguments
    threads: int
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = "."


def main(
    orders: Orders,
    report: Connection,
    lifeline: Connection,
    output: Connection,
    distress: Connection,
) -> None:
    """Run the worker and send home what became of it; the process ends here.

    `report` goes both ways: results home, the kernel's question for the trail here. `lifeline` is
    never written to: it ends when the kernel does. `output` takes stdout and stderr, `distress`
    takes the Python stacks at a crash or on request.
    """
    die_with_the_kernel(lifeline)
    redirect_output(output)
    prepare_for_distress(distress)
    home = Home(report)
    home.send("started")
    threading.Thread(target=answer_questions, args=(report, home), daemon=True).start()
    try:
        settle_in(orders)
        value = serialization.pack(work(orders.parcel))
        letter = ("returned", value, {})
    except BaseException as error:
        letter = ("raised", b"", exceptions.describe(error))
    if os.getpid() != home.pid:
        os._exit(0)  # a child that the worker forked, and that returned from it too
    atexit._run_exitfuncs()  # only the worker's own, see settle_in; torchrun's ranks run them too
    flush_streams()
    kind, body, details = letter
    home.send(kind, body, time=time.monotonic(), trail=flight_recorder.read(), **details)
    if kind == "returned":
        home.may_go.wait()  # others may still be connecting to this rank
    leave()


def work(parcel: bytes) -> Any:
    """Unpack and call the worker; `sys.exit(0)` is a return of None, as it is under torchrun."""
    worker, args, kwargs = serialization.unpack(parcel)
    file = getattr(sys.modules.get(getattr(worker, "__module__", "")), "__file__", None)
    sys.argv = [file or "worker"]  # a worker's argparse must not meet the kernel's own arguments
    if file:
        sys.path.append(os.path.dirname(file))  # its neighbours, as for a script
    try:
        return worker(*args, **kwargs)
    except SystemExit as leaving:
        if leaving.code in (None, 0):
            return None
        raise


class Home:
    """The way back to the kernel, for the worker's thread and the one that answers questions."""

    def __init__(self, report: Connection):
        self.report, self.lock, self.pid = report, threading.Lock(), os.getpid()
        self.may_go = threading.Event()

    def send(self, kind: str, body: bytes = b"", **details: Any) -> None:
        """Send a letter; if the kernel has gone, the lifeline ends this process."""
        with self.lock, contextlib.suppress(OSError):
            framing.send(self.report, pickle.dumps({"kind": kind, **details}), body)


def answer_questions(report: Connection, home: Home) -> None:
    """Say where this rank stands whenever the kernel asks; gloo waits without the GIL."""
    main_thread, inbox = threading.main_thread().ident, framing.Inbox()
    with contextlib.suppress(EOFError, OSError):
        while True:
            for question, _ in inbox.feed(framing.some(report)):
                if question == b"go":
                    home.may_go.set()
                    continue
                stack = flight_recorder.stack(sys._current_frames().get(main_thread))
                home.send("position", trail=flight_recorder.read(), stack=stack)


def redirect_output(output: Connection) -> None:
    """Let descriptors 1 and 2, and the streams on top of them, write to the kernel's pipe."""
    source = output.fileno()
    if os.name == "nt":
        import msvcrt

        source = msvcrt.open_osfhandle(source, os.O_APPEND)
    for target in (1, 2):
        os.dup2(source, target)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # a subprocess that reads a terminal from the background would be stopped
    os.close(nothing)
    # Line buffered: under PYTHONUNBUFFERED `print` would write a text and its newline apart.
    format = {"buffering": 1, "encoding": "utf-8", "errors": "backslashreplace", "closefd": False}
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", **format)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", **format)


def flush_streams() -> None:
    """Write out what the worker has printed, also where it put its own streams in their place."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):
            stream.flush()


def prepare_for_distress(distress: Connection) -> None:
    """Have the Python stacks written at a fatal signal, and when the kernel asks by signal."""
    if os.name != "nt":
        faulthandler.enable(distress)
        faulthandler.register(STACKS_SIGNAL, distress, all_threads=True)


def settle_in(orders: Orders) -> None:
    """Give this process what a fresh one has under torchrun: environment, seeds, threads."""
    os.environ.clear()
    os.environ.update(orders.environment)
    os.chdir(orders.folder)
    if orders.folder not in sys.path:
        sys.path.insert(0, orders.folder)
    random.seed()  # forked ranks share all three states, separate processes do not
    numpy.random.seed()
    torch.seed()
    torch.set_num_threads(orders.threads)
    dist.set_debug_level_from_env()  # torch reads these two when it is imported
    if "TORCH_LOGS" in os.environ:
        torch._logging._init_logs()
    atexit._clear()  # those of the fork server
    multiprocessing.set_start_method(None, force=True)  # else a DataLoader uses the fork server
    compile_sources_afresh()
    workarounds.keep_groups_of_ddp()
    workarounds.meet_without_name_lookups()


def compile_sources_afresh() -> None:
    """Ignore .pyc files outside the libraries: their time misses an edit within the same second."""
    stats = importlib.machinery.SourceFileLoader.path_stats

    def path_stats(self, path):
        if is_library(str(path)):
            return stats(self, path)
        raise OSError("compiled from source, see compile_sources_afresh")

    importlib.machinery.SourceFileLoader.path_stats = path_stats


def leave() -> None:
    """End this process, and not by way of the interpreter's own end.

    In that one gloo can abort: "terminate called without an active exception" (torch 2.13).
    """
    threading._shutdown()  # waits for the worker's threads, and ends idle thread pools
    multiprocessing.util._exit_function()
    flush_streams()
    os._exit(0)
