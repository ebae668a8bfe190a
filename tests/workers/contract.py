"""Workers that tell what surrounds them."""

import atexit
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy
import torch
import torch.distributed as dist


def rank() -> int:
    return int(os.environ["RANK"])


def environment() -> dict:
    return dict(os.environ)


def echo(*args, **kwargs):
    return rank(), args, kwargs


def slower_first() -> int:
    time.sleep(0.05 * (int(os.environ["WORLD_SIZE"]) - rank()))
    return rank()


def own_state() -> dict:
    return {
        "cwd": os.getcwd(),
        "argv": sys.argv,
        "threads": torch.get_num_threads(),
        "stdin": os.read(0, 1),
        "level": dist.get_debug_level().name,
        "group": os.getpgrp() == os.getpid(),
        "method": sys.modules["multiprocessing"].get_start_method(allow_none=True),
    }


def numbers() -> tuple:
    return random.random(), numpy.random.rand(), torch.rand(1).item()


def neighbour() -> str:
    from next_door import GREETING  # lies next to this file, found as it is under torchrun

    return GREETING


def leaves(code):
    sys.exit(code)


def says_goodbye(path: str):
    atexit.register(lambda: Path(path, f"{rank()}").write_text("goodbye"))
    pool = tempfile.TemporaryDirectory()
    Path(path, f"folder{rank()}").write_text(pool.name)
    return pool.name


def thread_writes_late(path: str):
    def write():
        time.sleep(0.1)
        Path(path, f"{rank()}").write_text("late")

    threading.Thread(target=write).start()


def endless_threads(daemon: bool) -> int:
    threading.Thread(target=time.sleep, args=(3600,), daemon=daemon).start()
    return rank()


def idle_pool() -> int:
    from concurrent.futures import ThreadPoolExecutor

    global pool
    pool = ThreadPoolExecutor(2)
    return pool.submit(rank).result()


def fork_falls_through() -> int:
    if os.fork() == 0:
        return -1  # returns from the worker a second time, in a process that is no rank
    return rank()


def nested() -> list:
    from manyranks.launcher.calls import Call
    from manyranks.launcher.launch import run_ranks
    from tests.workers.launching import all_reduce

    return run_ranks(Call(all_reduce), 2, quiet=True)


def cuda_visible() -> tuple:
    return os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.device_count()


def ddp_outlives_its_group() -> bool:
    from manyranks.launcher import workarounds

    dist.init_process_group("gloo")
    group = dist.group.WORLD
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    model(torch.ones(8, 4)).sum().backward()
    dist.destroy_process_group()
    return any(kept is group for kept in workarounds.GROUPS)


def hello() -> int:
    """The least that can be said to the others: some are still connecting when this returns."""
    dist.init_process_group("gloo")
    return dist.get_rank()


def options_of_the_resolver() -> list:
    """As the C library sees them: before the group is made, when its store is, and afterwards."""
    import ctypes

    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_char_p
    seen, make = [libc.getenv(b"RES_OPTIONS")], dist.TCPStore

    def look(*args, **kwargs):
        seen.append(libc.getenv(b"RES_OPTIONS"))
        os.write(2, b"kept\n")
        return make(*args, **kwargs)

    dist.TCPStore = look
    dist.init_process_group("gloo")
    return [*seen, libc.getenv(b"RES_OPTIONS")]
