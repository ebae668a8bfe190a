"""What runs inside a rank: the same environment as under torchrun, and one report to the kernel.

The fork server preloads this module together with torch; it must not import a chapter or a cell,
so that an edited file is what runs next.
"""

import atexit
import contextlib
import faulthandler
import importlib.machinery
import multiprocessing.spawn
import multiprocessing.util
import os
import pickle
import random
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy
import torch
import torch.distributed as dist

from manyranks import cpu_for_gpus
from manyranks.diagnostics import exceptions, flight_recorder, user_code
from manyranks.diagnostics.evidence import Frame, State
from manyranks.diagnostics.handled_errors import current_error, thread_error_of
from manyranks.errors import MissingMainGuard
from manyranks.launcher import framing, nested_processes, serialization, workarounds
from manyranks.launcher.parent_watchdog import exit_with_kernel
from manyranks.launcher.rendezvous import LaunchRendezvous
from manyranks.launcher.scheduler_variables import offer_hostlist
from manyranks.network.emulation import emulate_if_configured

STACKS_SIGNAL = getattr(signal, "SIGUSR1", None)
importing_main = False  # True while a rank runs the script that launched it, to find the worker


@dataclass
class RankConfig:
    """What the kernel gives a rank: the pickled Call, its threads, its environment."""

    call: bytes
    threads: int
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = "."
    main: dict[str, str] = field(default_factory=dict)  # where multiprocessing finds `__main__`
    worker_folders: frozenset[str] = frozenset()  # for `user_code`
    gpus: int = 0  # that a program is told where none is seen: it computes on the CPU


def main(
    config: RankConfig,
    report: Connection,
    watchdog_pipe: Connection,
    output: Connection,
    stacks: Connection,
) -> None:
    """Run the worker and report its outcome; the process ends here.

    `report` works both ways: phases and the result go to the kernel, questions come from it.
    `watchdog_pipe` is never written to: it closes when the kernel ends. `output` takes stdout and
    stderr; `stacks` takes the Python stacks at a crash or on request.
    """
    exit_with_kernel(watchdog_pipe)
    for pipe in (report, stacks):  # exec closes both, which shows the kernel that it happened
        os.set_inheritable(pipe.fileno(), False)
    redirect_output(output)
    if STACKS_SIGNAL:  # at a fatal signal, and when the kernel asks by this one
        faulthandler.enable(stacks)
        faulthandler.register(STACKS_SIGNAL, stacks, all_threads=True)
    reporter = Reporter(report)
    reporter.send(phase=State.IMPORTING, main_thread=threading.get_ident())
    threading.Thread(target=answer_questions, args=(report, reporter), daemon=True).start()
    report_thread_errors(reporter)
    rendezvous = LaunchRendezvous(config.environment)
    exit_frames: list[Frame] = []
    # The error stays, and so what its frames hold: freeing it may run code that waits.
    worker_error = None
    try:
        set_up_process(config, rendezvous)
        if config.gpus:
            cpu_for_gpus.install(config.gpus, reporter.notify)
            offer_hostlist()
        call = serialization.unpack(config.call)
        sys.argv = [call.file or "worker"]  # argparse must not see the kernel's arguments
        if call.file:
            sys.path.append(os.path.dirname(call.file))  # as a script finds its own folder there
        reporter.enter(State.WORKING)
        value = call_worker(call, exit_frames)
        reporter.enter(State.RETURNING)
        ending, body, error = State.RETURNED, serialization.pack_result(value), {}
    except BaseException as problem:
        ending, body, error, worker_error = State.FAILED, [], exceptions.as_data(problem), problem
    if os.getpid() != reporter.pid:
        os._exit(0)  # a child that the worker forked, which returned from it too
    send_outcome = partial(
        reporter.send_outcome, body, rendezvous, ending=ending, error=error, exit_frames=exit_frames
    )
    if worker_error:
        send_outcome()  # what runs at the end may hang, crash or exit
    reporter.enter(State.LEAVING)
    atexit._run_exitfuncs()  # only the worker's own (see adopt), as ranks under torchrun do
    if not worker_error:
        send_outcome()
        reporter.may_exit.wait()  # others may still be connecting to this rank
    exit_process()


def call_worker(call: Any, exit_frames: list[Frame]) -> Any:
    """Call the worker; `sys.exit(0)` is a return of None, as it is under torchrun.

    `exit_frames` then gets the frames from which it left, innermost first.
    """
    try:
        return call.run()
    except SystemExit as sys_exit:
        if sys_exit.code in (None, 0):
            exit_frames += exceptions.frames(sys_exit)
            return None
        raise


class Reporter:
    """Sends to the kernel from the worker's thread and from the one that answers questions."""

    def __init__(self, report: Connection):
        self.report, self.lock, self.pid = report, threading.Lock(), os.getpid()
        self.may_exit = threading.Event()

    def enter(self, phase: State) -> None:
        """Announce the next phase."""
        if os.getpid() == self.pid:
            self.send(phase=phase)

    def notify(self, kind: str, sentence: str) -> None:
        """Have the kernel print this sentence, unless another rank has sent one of this kind."""
        if os.getpid() == self.pid:
            self.send(notice=(kind, sentence))

    def send_outcome(self, body: Sequence, rendezvous: LaunchRendezvous, **how: Any) -> None:
        """Send the outcome; all that the worker printed goes before it."""
        flush_streams()
        joined = rendezvous.joined or dist.is_initialized()
        record = flight_recorder.read()
        self.send(body, time=time.monotonic(), record=record, joined=joined, **how)

    def send(self, body: Sequence[memoryview] = (), **head: Any) -> None:
        """Send a message; if the kernel has gone, the watchdog pipe ends this process."""
        with self.lock, contextlib.suppress(OSError):
            framing.send(self.report, pickle.dumps(head), body)


def answer_questions(report: Connection, reporter: Reporter) -> None:
    """Say where this rank stands whenever the kernel asks; gloo releases the GIL as it waits."""
    main_thread, decoder = threading.main_thread().ident or 0, framing.Decoder()
    reporter.send(listener=threading.get_native_id())  # whose activity does not count
    with contextlib.suppress(EOFError, OSError):
        while True:
            for question, _ in decoder.read(report):
                if question == b"go":
                    reporter.may_exit.set()
                    continue
                stack = flight_recorder.stack(sys._current_frames().get(main_thread))
                handled_error = current_error(main_thread)
                reporter.send(
                    record=flight_recorder.read(), stack=stack, handled_error=handled_error
                )


def report_thread_errors(reporter: Reporter) -> None:
    """Tell the kernel of each error that ends a thread: the main thread may wait for it in vain."""
    before = threading.excepthook

    def report(thread: threading.ExceptHookArgs) -> None:
        before(thread)
        error = thread_error_of(thread.exc_value)
        if error and os.getpid() == reporter.pid:
            reporter.send(thread_error=error)

    threading.excepthook = report


def redirect_output(output: Connection) -> None:
    """Make descriptors 1 and 2, and the streams on top of them, write to the kernel's pipe."""
    source = output.fileno()
    if os.name == "nt":
        import msvcrt

        windows: Any = msvcrt  # its functions are unknown to type checkers elsewhere
        source = windows.open_osfhandle(source, os.O_APPEND)
    for target in (1, 2):
        os.dup2(source, target)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # a background process that reads from a terminal would be stopped
    os.close(nothing)
    # Line buffered: with PYTHONUNBUFFERED, `print` would write a text and its newline separately.
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = open(descriptor, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def flush_streams() -> None:
    """Flush what the worker has printed, even if it replaced the streams by its own."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):
            if stream:
                stream.flush()


def set_up_process(config: RankConfig, rendezvous: LaunchRendezvous) -> None:
    """Give this process what a fresh one has under torchrun: environment, seeds, threads."""
    os.environ.clear()
    os.environ.update(config.environment)
    os.chdir(config.folder)
    user_code.WORKER_FOLDERS.update(config.worker_folders)
    user_code.set_base_folder(config.folder)
    if config.folder not in sys.path:
        sys.path.insert(0, config.folder)
    random.seed()  # forked ranks share all three states, separate processes do not
    numpy.random.seed()
    torch.seed()
    torch.set_num_threads(config.threads)
    dist.set_debug_level_from_env()  # torch reads these two variables only when it is imported
    if "TORCH_LOGS" in os.environ:
        torch._logging._init_logs()
    atexit._clear()  # those of the fork server
    multiprocessing.set_start_method(None, force=True)  # else a DataLoader uses the server
    compile_sources_afresh()
    rendezvous.install()
    workarounds.keep_groups_of_ddp()
    nested_processes.run_spawned_ranks_in_place()
    nested_processes.prepare_children()
    emulate_if_configured()
    if config.main:
        rerun_main(config.main)


def rerun_main(where: dict[str, str]) -> None:
    """Run the script that launched this rank as "__mp_main__", because the worker is in it."""
    global importing_main
    importing_main = True
    try:
        multiprocessing.spawn.prepare(where)
    finally:
        importing_main = False


def raise_if_script_reimported() -> None:
    """End a rank that is about to launch: the script that it imports has no `__main__` guard."""
    if importing_main:
        raise MissingMainGuard


def compile_sources_afresh() -> None:
    """Ignore .pyc files outside the libraries: their time stamp misses an edit within a second."""
    loader: Any = importlib.machinery.SourceFileLoader
    stats = loader.path_stats

    def path_stats(self: Any, path: str) -> Any:
        if user_code.is_library(str(path)):
            return stats(self, path)
        raise OSError("compiled from source, see compile_sources_afresh")

    loader.path_stats = path_stats


def exit_process() -> None:
    """End this process without the interpreter's shutdown.

    During shutdown gloo can abort: "terminate called without an active exception" (torch 2.13).
    """
    private: Any = threading
    private._shutdown()  # waits for the worker's threads, and ends idle thread pools
    private = multiprocessing.util
    private._exit_function()
    flush_streams()
    os._exit(0)
