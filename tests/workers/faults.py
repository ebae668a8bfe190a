"""Workers that fail on one rank, each in its own way, while the others wait in a collective."""

import ctypes
import os
import signal
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist


class Unpicklable(Exception):
    def __init__(self, message):
        super().__init__(message, threading.Lock())


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def fail(how: str):
    """Fail in the way called `how`; each is on its own line, which the report names."""
    if how == "raise":
        raise ValueError("no such digit")
    if how == "exit":
        os._exit(3)
    if how == "sys.exit":
        sys.exit(4)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "abort":
        os.abort()
    if how == "unpicklable":
        raise Unpicklable("holds a lock")
    if how == "speechless":
        raise Speechless
    if how == "memory":
        raise MemoryError
    if how == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)


def one_fails(how: str, bad: int = 1, after: float = 0.0):
    dist.init_process_group("gloo")
    x = torch.ones(4)
    dist.all_reduce(x)
    if dist.get_rank() == bad:
        time.sleep(after)
        fail(how)
    dist.all_reduce(x)
    return x.sum().item()


def fails_before_the_group(how: str, bad: int = 1):
    if os.environ["RANK"] == str(bad):
        fail(how)
    dist.init_process_group("gloo")


def all_fail():
    raise ValueError("the same everywhere")


def returns_early():
    dist.init_process_group("gloo")
    x = torch.ones(4)
    dist.all_reduce(x)
    if dist.get_rank() == 1:
        return "early"
    dist.all_reduce(x)  # rank 1 is not here
    return "late"


def scatters_alone():
    """Rank 0 waits in a reduce_scatter for a rank that has returned."""
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        dist.reduce_scatter(torch.zeros(2), [torch.ones(2)] * 2)


def destroys_early():
    dist.init_process_group("gloo")
    x = torch.ones(4)
    dist.all_reduce(x)
    if dist.get_rank() == 1:
        dist.destroy_process_group()
        time.sleep(60)
    dist.all_reduce(x)


def shapes_differ():
    dist.init_process_group("gloo")
    x = torch.ones(4 if dist.get_rank() == 0 else 8)
    dist.all_reduce(x)


def crashes_in_a_thread():
    threading.Thread(target=lambda: ctypes.string_at(0)).start()
    time.sleep(60)


def one_step_more():
    """Rank 1 has one batch more, so its gradients meet the sum of rank 0's losses."""
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 3))
    for _ in range(3 + dist.get_rank()):
        loss = model(torch.ones(4, 8)).sum()
        loss.backward()  # where rank 1 still is
    total = torch.tensor([loss.item()])
    dist.all_reduce(total)  # where rank 0 is


def misspells_a_name():
    model = torch.nn.Linear(2, 2)
    return modle, model  # noqa: F821


def misspells_an_attribute():
    return torch.Size([2]).nume()


def reads_a_wrapped_model():
    dist.init_process_group("gloo")
    return torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2)).weight


def loads_a_wrapped_state():
    torch.nn.Linear(2, 2).load_state_dict({"module.weight": torch.ones(2, 2)})


def opens_a_missing_file():
    return torch.load("no_such_file.pt")


def deep():
    def first():
        second()

    def second():
        try:
            torch.ones(2) @ torch.ones(3)
        except RuntimeError as error:
            raise KeyError("weights") from error

    first()


def fails_in_a_library(called: str):
    import deep_library  # the test writes it

    getattr(deep_library, called)()


def recursion(n: int = 0):
    recursion(n + 1)


def group():
    raise ExceptionGroup("two things", [ValueError("one"), TypeError("two")])


def long_message():
    raise ValueError("x" * 10_000_000)


def reads_the_keyboard():
    return input("your name? ")


def breaks_into_the_debugger():
    breakpoint()


def asks_a_subprocess():
    import subprocess

    return subprocess.run(["cat"], capture_output=True, timeout=5).stdout


def times_out_by_itself():
    dist.init_process_group("gloo", timeout=timedelta(seconds=0.7))
    x = torch.ones(4)
    dist.all_reduce(x)
    if dist.get_rank() == 0:
        dist.all_reduce(x)
    else:
        time.sleep(60)


def waits_in_clean_up():
    """Rank 1 has an error and waits in a `finally`; rank 0 runs out of time."""
    seconds = 0.7 if os.environ["RANK"] == "0" else 60
    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds))
    dist.barrier()
    try:
        if dist.get_rank() == 1:
            raise ValueError("rank 1 is broken")
        dist.all_reduce(torch.ones(4))
    finally:
        if dist.get_rank() == 1:
            dist.barrier()


def no_group():
    dist.all_reduce(torch.ones(1))


def others_sleep(after: float):
    dist.init_process_group("gloo")
    if dist.get_rank() == 2:
        time.sleep(after)
        os._exit(3)
    time.sleep(60)


def misses_a_name():
    return rank  # noqa: F821


def unused_parameters():
    dist.init_process_group("gloo")
    model = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 2), "unused": torch.nn.Linear(2, 2)})
    model.forward = lambda x: model["used"](x)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    for _ in range(2):
        ddp(torch.ones(1, 2)).sum().backward()


def not_a_member():
    dist.init_process_group("gloo")
    group = dist.new_group([0])
    if dist.get_rank() == 1:
        dist.broadcast(torch.ones(1), src=1, group=group)
    time.sleep(0.5)


def prints_then_fails():
    if os.environ["RANK"] == "1":
        print("the last words")
        os._exit(1)
    time.sleep(60)


def transfers(how: str):
    """Rank 0 sends to rank 1 or receives from it; rank 1 returns, or stays but does neither."""
    seconds = 0.7 if how == "times out" else 60
    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds))
    dist.barrier()
    x = torch.ones(4)
    if dist.get_rank() == 1:
        if how == "times out":
            time.sleep(60)
        if how == "destroyed":
            dist.destroy_process_group()
            time.sleep(60)
        return
    if how == "send":
        dist.send(torch.ones(10_000_000), dst=1)
    if how == "irecv":
        dist.irecv(x, src=1).wait()
    if how == "work":
        work = dist.irecv(x, src=1)
        work.wait()
    dist.recv(x, src=1)


def waits_after_what_both_had(how: str):
    """Both ranks handle the same; then rank 0 waits in a collective that rank 1 does not call."""
    dist.init_process_group("gloo")
    if how == "exit":
        try:
            sys.exit(0)
        finally:
            if dist.get_rank() == 0:
                dist.all_reduce(torch.ones(4))
    try:
        next(iter([]))
    except StopIteration:
        dist.barrier()
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(4))
