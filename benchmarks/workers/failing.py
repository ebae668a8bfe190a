"""Workers that fail on purpose on one rank while the others wait in a collective.

The moment of the failure is noted in a file: time.monotonic() is one clock for all processes.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist


def fail(how: str, bad: int, note: str = "") -> object:
    """Rank `bad` fails in the way called `how`, all others wait for it; `note` is the file."""
    dist.init_process_group("gloo")
    x = torch.ones(4)
    dist.all_reduce(x)
    if dist.get_rank() == bad:
        if note:
            Path(note).write_text(repr(time.monotonic()))
        return WAYS[how]()
    dist.all_reduce(x)
    return x.sum().item()


def raise_error() -> None:
    """A Python error."""
    raise ValueError("failing on purpose")


def loop() -> None:
    """Never return."""
    while True:
        pass


def receive() -> None:
    """Wait inside gloo for a message that is never sent."""
    dist.recv(torch.ones(4), src=(dist.get_rank() + 1) % dist.get_world_size())


WAYS = {
    "raise": raise_error,
    "sys.exit(4)": lambda: sys.exit(4),
    "os._exit(3)": lambda: os._exit(3),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segmentation fault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "early return": lambda: None,
    "result that cannot be pickled": threading.Lock,
    "endless loop": loop,
    "stuck in gloo": receive,
}


def deadlock(folder: str) -> None:
    """All ranks wait inside gloo forever; each leaves a file named after its pid in `folder`."""
    dist.init_process_group("gloo")
    x = torch.ones(4)
    dist.all_reduce(x)
    part = Path(folder, f".{os.getpid()}")
    part.write_text("")
    part.rename(Path(folder, str(os.getpid())))
    if dist.get_rank() == 0:
        dist.recv(x, src=1)
    dist.all_reduce(x)
