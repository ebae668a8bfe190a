"""In a rank: processes that the worker starts, among them the ranks that it means to start."""

import functools
import importlib
import os
import sys
from collections.abc import Callable
from multiprocessing import get_start_method
from multiprocessing.process import BaseProcess
from typing import Any

import torch.distributed as dist
import torch.multiprocessing

from manyranks import cpu_for_gpus
from manyranks.diagnostics import user_code
from manyranks.launcher.calls import takes_rank_first

AGENT_STORE_VARIABLE = "TORCHELASTIC_USE_AGENT_STORE"
STARTED_ALREADY = (
    "The ranks have been started already, and here a rank starts {name} as further ranks.\n"
)
LAUNCH_IT = (
    "Launch {name} itself, from its file: launch fills in its rank and world size. Or launch the "
    "script with ranks=1: a single rank may start the others."
)
CALL_IT_ONCE = (
    "In a %%ranks cell, replace the whole loop that makes, starts and joins the processes by one "
    "call of {name}, with this rank and world_size."
)
OTHER_NUMBER = (
    "mp.spawn is asked for {asked} processes, and {ranks} ranks have been started. Launch with "
    "ranks=1: then the script starts the processes of {name} itself."
)
SHARED = (
    "mp.spawn passes {kind} to {name}, by which processes share what they hold, and in several "
    "ranks each has one of its own. With ranks=1 the script starts its processes itself."
)
NO_PROCESS = (
    "mp.spawn is asked for 0 processes, so {name} does not run. Is that number the number of GPUs?"
)


class InPlace:
    """What `mp.spawn(..., join=False)` returns where this rank has run the function itself."""

    processes: tuple = ()

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """All have ended."""
        return True


def run_spawned_ranks_in_place() -> None:
    """Make `mp.spawn` in one of several ranks run its function there, as the rank that it is.

    Each rank would otherwise start all of them again, and all would meet at one port. Ranks that
    are started in another way are refused. A single rank may start any process; other ranks may
    start functions whose first parameter is not a rank.
    """
    processes: Any = BaseProcess
    start, pid = processes.start, os.getpid()
    module: Any = importlib.import_module("torch.multiprocessing.spawn")
    spawn = module.start_processes

    def makes_ranks(function: Any) -> bool:
        among_others = os.getpid() == pid and int(os.environ.get("WORLD_SIZE", 1)) > 1
        own = not getattr(function, "__module__", "").startswith("torch.")
        return among_others and own and takes_rank_first(function)

    @functools.wraps(spawn)
    def spawn_in_place(
        fn: Any, args: tuple = (), nprocs: int = 1, join: bool = True, *more: Any, **options: Any
    ) -> Any:
        name = getattr(fn, "__name__", "its function")
        if nprocs == 0:
            print(NO_PROCESS.format(name=name))
        if nprocs == 0 or not makes_ranks(fn):
            return spawn(fn, args, nprocs, join, *more, **options)
        ranks = int(os.environ["LOCAL_WORLD_SIZE"])
        if nprocs != ranks:
            raise RuntimeError(OTHER_NUMBER.format(asked=nprocs, ranks=ranks, name=name))
        if kind := shared_kind(args):
            raise RuntimeError(SHARED.format(kind=kind, name=name))
        has_group = dist.is_initialized()
        fn(int(os.environ["LOCAL_RANK"]), *args)
        if dist.is_initialized() and not has_group:  # it would have ended with its process
            dist.destroy_process_group()
        return None if join else InPlace()

    @functools.wraps(start)
    def start_no_rank(self: BaseProcess) -> None:
        function: Any = getattr(self, "_target", None)
        if makes_ranks(function):
            main_file = getattr(sys.modules["__main__"], "__file__", None) or ""
            mend = CALL_IT_ONCE if user_code.is_cell(main_file) else LAUNCH_IT
            raise RuntimeError((STARTED_ALREADY + mend).format(name=function.__name__))
        start(self)

    processes.start = start_no_rank
    module.start_processes = torch.multiprocessing.start_processes = spawn_in_place


def shared_kind(value: Any) -> str:
    """The type of what processes share by it, a queue or a shared tensor; "" if there is none."""
    if isinstance(value, torch.Tensor):
        return "a tensor in shared memory" if value.is_shared() else ""
    if isinstance(value, list | tuple):
        return next(filter(None, map(shared_kind, value)), "")
    kind = type(value)
    return f"a {kind.__name__}" if kind.__module__.startswith("multiprocessing.") else ""


def prepare_children() -> None:
    """Let processes that a rank starts do what the rank itself could.

    Those of a rank that is alone may make a process group of their own: they begin without the
    variable that says that an agent hosts the store. Otherwise they wait at a port of their own for
    a store that nobody hosts (torch 2.13, under torchrun too). Children of several ranks may meet
    each other at the launch's store. And in children that do not inherit this process's memory, the
    CPU takes the place of GPUs as in the rank.
    """
    processes: Any = BaseProcess
    start, count = processes.start, [0]

    @functools.wraps(start)
    def start_prepared(self: Any) -> None:
        alone = int(os.environ.get("WORLD_SIZE", 1)) == 1
        agent = os.environ.pop(AGENT_STORE_VARIABLE, None) if alone else None
        kind = getattr(self, "_start_method", None) or get_start_method()
        if cpu_for_gpus.number() and kind != "fork":
            self._target = OnCPU(self._target, speaks=not count[0])
            count[0] += 1
        try:
            start(self)
        finally:
            if agent is not None:
                os.environ[AGENT_STORE_VARIABLE] = agent

    processes.start = start_prepared


class OnCPU:
    """A function of a child process that computes on the CPU what asks for a GPU."""

    def __init__(self, function: Callable | None, speaks: bool):
        self.function, self.speaks, self.gpus = function, speaks, cpu_for_gpus.number()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """In the child."""
        report = print_sentence if self.speaks else keep_silent
        cpu_for_gpus.install(self.gpus, report)
        return self.function(*args, **kwargs) if self.function else None


def print_sentence(kind: str, sentence: str) -> None:
    """Say it here: the launch does not hear this process."""
    print(sentence, flush=True)


def keep_silent(kind: str, sentence: str) -> None:
    """Another child says it."""
