"""Workarounds for faults of PyTorch, each with the version that it was seen on."""

import contextlib
import ctypes
import functools
import multiprocessing.spawn
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist

GROUPS: list[dist.ProcessGroup] = []
LOOKUP_WARNING = (
    b"The hostname of the client socket cannot be retrieved"  # a line of TCPStore's log
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
