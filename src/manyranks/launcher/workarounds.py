"""Workarounds for faults of PyTorch, each with the version that it was seen on."""

import contextlib
import ctypes
import functools
import importlib
import multiprocessing.spawn
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from typing import Any

import torch.distributed as dist
import torch.multiprocessing

from manyranks.diagnostics import user_code
from manyranks.launcher.calls import takes_rank_first

GROUPS: list[dist.ProcessGroup] = []
AGENT_STORE_VARIABLE = "TORCHELASTIC_USE_AGENT_STORE"
LOOKUP_WARNING = (
    b"The hostname of the client socket cannot be retrieved"  # a line of TCPStore's log
)
LAUNCH_IT = (
    "Launch {name} itself, from its file: launch fills in its rank and world size. Or launch the "
    "script with ranks=1: a single rank may start the others."
)
CALL_IT = "In a %%ranks cell, call {name}(rank, …) itself in place of this line."
CALL_IT_ONCE = (
    "In a %%ranks cell, replace the whole loop that makes, starts and joins the processes by one "
    "call of {name}, with this rank and world_size."
)
NO_PROCESS = (
    "mp.spawn is asked for 0 processes, so {name} does not run. Is that number the number of GPUs?"
)
RESOLVER_LOCK = threading.Lock()  # the environment and descriptor 2 belong to the whole process


def keep_groups_of_ddp() -> None:
    """Keep every process group of a DistributedDataParallel alive until the rank ends.

    A model that lives longer than `destroy_process_group()`, as in many a `main()`, holds the last
    reference to the group. Deleting it then waits for gloo's thread while holding the GIL, which
    that thread needs to end: a deadlock in 1 of 15 runs (torch 2.13). A rank ends by os._exit, so a
    group that is kept costs only its open sockets until then.
    """
    make = dist.Reducer

    @functools.wraps(make, updated=())
    def make_and_keep(*args: Any, **kwargs: Any) -> dist.Reducer:
        groups = [a for a in (*args, *kwargs.values()) if isinstance(a, dist.ProcessGroup)]
        GROUPS.extend(group for group in groups if group not in GROUPS)
        return make(*args, **kwargs)

    dist.Reducer = make_and_keep


@contextlib.contextmanager
def no_name_lookups() -> Iterator[None]:
    """Keep glibc from asking a name server in this thread, within the block.

    Before a TCPStore connects, it looks up the name of ::ffff:127.0.0.1 for a line of its log
    (torch 2.13). That takes 5 to 10 s in every rank if the network is slow or gone. Does nothing
    on systems other than Linux.
    """
    reload_resolver = (
        getattr(ctypes.CDLL(None), "__res_init", None) if sys.platform == "linux" else None
    )
    if reload_resolver is None:
        yield
        return
    with RESOLVER_LOCK:
        before = os.environ.get("RES_OPTIONS")
        os.environ["RES_OPTIONS"] = "attempts:0"
        reload_resolver()
        try:
            with stderr_without(LOOKUP_WARNING):
                yield
        finally:
            del os.environ["RES_OPTIONS"]
            if before is not None:
                os.environ["RES_OPTIONS"] = before
            reload_resolver()


@contextlib.contextmanager
def stderr_without(words: bytes) -> Iterator[None]:
    """Hold back descriptor 2; afterwards pass on all lines except those that contain `words`."""
    with tempfile.TemporaryFile() as buffer:
        stderr_copy = os.dup(2)
        os.dup2(buffer.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr_copy, 2)
            os.close(stderr_copy)
            buffer.seek(0)
            for line in buffer:
                if words not in line:
                    os.write(2, line)


def forbid_nested_spawn() -> None:
    """Make `mp.spawn` in a rank say at once that the ranks have been started already.

    Otherwise each rank would start all of them again, and all would meet at one port. A single rank
    may start any process; other ranks may start functions whose first parameter is not a rank.
    """
    processes: Any = BaseProcess
    start, rank = processes.start, os.getpid()
    module: Any = importlib.import_module("torch.multiprocessing.spawn")
    spawn = module.start_processes

    def refuse(function: Any, call_it: str) -> None:
        others = os.getpid() == rank and int(os.environ.get("WORLD_SIZE", 1)) > 1
        own = not getattr(function, "__module__", "").startswith("torch.")
        if others and own and takes_rank_first(function):
            main_file = getattr(sys.modules["__main__"], "__file__", None) or ""
            fix = call_it if user_code.is_cell(main_file) else LAUNCH_IT
            raise RuntimeError(
                f"The ranks have been started already, and here a rank starts {function.__name__} "
                f"as further ranks.\n{fix.format(name=function.__name__)}"
            )

    @functools.wraps(spawn)
    def spawn_no_ranks(
        fn: Any, args: tuple = (), nprocs: int = 1, *more: Any, **options: Any
    ) -> Any:
        refuse(fn, CALL_IT)
        if nprocs == 0:
            print(NO_PROCESS.format(name=getattr(fn, "__name__", "its function")))
        return spawn(fn, args, nprocs, *more, **options)

    @functools.wraps(start)
    def start_no_rank(self: BaseProcess) -> None:
        refuse(getattr(self, "_target", None), CALL_IT_ONCE)
        start(self)

    processes.start = start_no_rank
    module.start_processes = torch.multiprocessing.start_processes = spawn_no_ranks


def hide_agent_store_from_children() -> None:
    """Let a rank that is alone start processes that make a process group of their own.

    They begin without the variable that says that an agent hosts the store: otherwise they wait at
    a port of their own for a store that nobody hosts (torch 2.13, under torchrun too). Children of
    several ranks may meet each other at the launch's store.
    """
    if int(os.environ["WORLD_SIZE"]) > 1:
        return
    processes: Any = BaseProcess
    start = processes.start

    @functools.wraps(start)
    def start_without_agent_store(self: BaseProcess) -> None:
        agent = os.environ.pop(AGENT_STORE_VARIABLE, None)
        try:
            start(self)
        finally:
            if agent is not None:
                os.environ[AGENT_STORE_VARIABLE] = agent

    processes.start = start_without_agent_store


class WithoutMain(str):
    """A process name that keeps multiprocessing from running the caller's `__main__` in it.

    A rank runs `__main__` itself, and only if it needs something that is defined there.
    """


def respect_without_main() -> None:
    """Make multiprocessing respect `WithoutMain`; by default every process runs `__main__` again.

    A script that launches a worker from a module would otherwise need
    `if __name__ == "__main__":` for no reason (Python 3.11 to 3.13).
    """
    prepare = multiprocessing.spawn.get_preparation_data
    if hasattr(prepare, "__wrapped__"):
        return

    @functools.wraps(prepare)
    def prepare_without_main(name: str) -> dict[str, Any]:
        data = prepare(name)
        without_main = {
            key: value for key, value in data.items() if not key.startswith("init_main_from")
        }
        return without_main if isinstance(name, WithoutMain) else data

    multiprocessing.spawn.get_preparation_data = prepare_without_main
