"""Faults of PyTorch that a launch works around, each with the version that it was seen on."""

import contextlib
import ctypes
import functools
import importlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist

KEPT: list[dist.ProcessGroup] = []
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


def meet_without_name_lookups() -> None:
    """Let `init_process_group` connect to its store under `no_name_lookups`."""
    rendezvous = importlib.import_module("torch.distributed.rendezvous")
    make = rendezvous.TCPStore

    @functools.wraps(make, updated=())
    def make_quietly(*args: Any, **kwargs: Any) -> dist.TCPStore:
        with no_name_lookups():
            return make(*args, **kwargs)

    rendezvous.TCPStore = make_quietly
