"""Faults of PyTorch that a launch works around, each with the version that it was seen on."""

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

from ddp_workbook.launcher.calls import starts_as_a_rank

KEPT: list[dist.ProcessGroup] = []
AGENT = "TORCHELASTIC_USE_AGENT_STORE"
NAMELESS = b"The hostname of the client socket cannot be retrieved"  # a line of TCPStore's log
RESOLVER = threading.Lock()  # environment and descriptor 2 are those of the whole process


def keep_groups_of_ddp() -> None:
    """Let no process group end together with a DistributedDataParallel.

    A model that lives longer than `destroy_process_group()`, as in many a `main()`, holds the last
    reference to the group. Its end then waits for gloo's thread, with the GIL, which that thread
    needs to end: a deadlock in 1 of 15 runs (torch 2.13). A rank ends by os._exit, so a group
    that is kept costs no more than its open sockets until then.
    """
    make = dist.Reducer

    @functools.wraps(make, updated=())
    def make_and_keep(*args: Any, **kwargs: Any) -> dist.Reducer:
        groups = [a for a in (*args, *kwargs.values()) if isinstance(a, dist.ProcessGroup)]
        KEPT.extend(group for group in groups if group not in KEPT)
        return make(*args, **kwargs)

    dist.Reducer = make_and_keep


@contextlib.contextmanager
def no_name_lookups() -> Iterator[None]:
    """Have glibc ask no name server in this thread, as long as it is inside.

    A TCPStore asks one for the name of ::ffff:127.0.0.1 before it connects, for a line of its log
    (torch 2.13): 5 to 10 s in every rank where the network is slow or gone. Elsewhere than on
    Linux nothing is changed.
    """
    read_options = (
        getattr(ctypes.CDLL(None), "__res_init", None) if sys.platform == "linux" else None
    )
    if read_options is None:
        yield
        return
    with RESOLVER:
        before = os.environ.get("RES_OPTIONS")
        os.environ["RES_OPTIONS"] = "attempts:0"
        read_options()
        try:
            with _stderr_without(NAMELESS):
                yield
        finally:
            del os.environ["RES_OPTIONS"]
            if before is not None:
                os.environ["RES_OPTIONS"] = before
            read_options()


@contextlib.contextmanager
def _stderr_without(words: bytes) -> Iterator[None]:
    """Hold descriptor 2 back; pass on afterwards what came, but for lines that hold `words`."""
    with tempfile.TemporaryFile() as held:
        kept = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            held.seek(0)
            for line in held:
                if words not in line:
                    os.write(2, line)


def no_second_launch_inside() -> None:
    """Let `mp.spawn` say at once that the ranks are there already.

    Each rank would start all of them, and all would meet at one port. A rank that is alone may
    start whom it likes, and any rank processes that do not take a rank as their first parameter.
    """
    start, rank = BaseProcess.start, os.getpid()
    module = importlib.import_module("torch.multiprocessing.spawn")
    spawn = module.start_processes

    def refuse(function: Any) -> None:
        others = os.getpid() == rank and int(os.environ.get("WORLD_SIZE", 1)) > 1
        own = not getattr(function, "__module__", "").startswith("torch.")
        if others and own and starts_as_a_rank(function):
            raise RuntimeError(
                f"The ranks have been started already, and here a rank starts {function.__name__} "
                f"as further ones. Launch {function.__name__} itself, from its file: launch fills "
                "in its rank and world size."
            )

    @functools.wraps(spawn)
    def spawn_no_ranks(fn: Any, *args: Any, **kwargs: Any) -> Any:
        refuse(fn)
        return spawn(fn, *args, **kwargs)

    @functools.wraps(start)
    def start_no_rank(self: BaseProcess) -> None:
        refuse(getattr(self, "_target", None))
        start(self)

    BaseProcess.start = start_no_rank
    module.start_processes = torch.multiprocessing.start_processes = spawn_no_ranks


def children_are_no_ranks() -> None:
    """Start child processes without the word that an agent keeps the store.

    A child that makes a process group of its own would wait at its port for a store that nobody
    hosts (torch 2.13, under torchrun too).
    """
    start = BaseProcess.start

    @functools.wraps(start)
    def start_as_a_process_of_its_own(self: BaseProcess) -> None:
        agent = os.environ.pop(AGENT, None)
        try:
            start(self)
        finally:
            if agent is not None:
                os.environ[AGENT] = agent

    BaseProcess.start = start_as_a_process_of_its_own


class WithoutMain(str):
    """A process's name that keeps multiprocessing from running the caller's `__main__` in it.

    A rank runs it itself, and only where something that it needs lives there.
    """


def leave_main_alone() -> None:
    """Have multiprocessing heed `WithoutMain`: it runs `__main__` anew in every process it starts.

    A script that launches a worker of a module would need `if __name__ == "__main__":` for nothing
    (Python 3.11 to 3.13).
    """
    prepare = multiprocessing.spawn.get_preparation_data
    if hasattr(prepare, "__wrapped__"):
        return

    @functools.wraps(prepare)
    def prepare_without_main(name: str) -> dict[str, Any]:
        data = prepare(name)
        kept = {key: value for key, value in data.items() if not key.startswith("init_main_from")}
        return kept if isinstance(name, WithoutMain) else data

    multiprocessing.spawn.get_preparation_data = prepare_without_main
