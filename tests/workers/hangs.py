"""Workers that never end, each for a reason that the report must name."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


def skipped_collective():
    dist.init_process_group("gloo")
    x = torch.ones(4)
    dist.all_reduce(x)
    if dist.get_rank() != 1:
        dist.broadcast(x, src=0)
    dist.all_reduce(x)  # rank 1 is one call ahead


def under_if_rank_0():
    dist.init_process_group("gloo")
    x = torch.ones(4)
    dist.all_reduce(x)
    if dist.get_rank() == 0:
        dist.all_reduce(x)
    while dist.get_rank() != 0:
        time.sleep(0.01)


def two_collectives():
    dist.init_process_group("gloo")
    x = torch.ones(4)
    if dist.get_rank() == 0:
        dist.all_reduce(x)
    else:
        dist.broadcast(x, src=0)
        dist.barrier()


def new_group_by_members():
    dist.init_process_group("gloo")
    if dist.get_rank() < 2:
        dist.new_group([0, 1])
    everyone = dist.new_group([0, 1, 2])  # the third in the count of ranks 0 and 1 alone
    dist.all_reduce(torch.ones(2), group=everyone)


def mesh_by_some():
    dist.init_process_group("gloo")
    if dist.get_rank() != 1:
        dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size() // 2, 2))
    time.sleep(60)


def both_receive():
    dist.init_process_group("gloo")
    x = torch.ones(4)
    dist.recv(x, src=1 - dist.get_rank())


def send_without_recv():
    dist.init_process_group("gloo")
    x = torch.ones(1_000_000)
    if dist.get_rank() == 0:
        dist.send(x, dst=1)
    else:
        dist.barrier()


def one_sided(call: str):
    """Rank 0 sends or receives; the others are busy."""
    dist.init_process_group("gloo")
    x = torch.ones(1_000_000)
    if dist.get_rank() > 0:
        time.sleep(60)
    if call == "send":
        dist.send(x, dst=1)
    if call == "recv":
        dist.recv(x, src=1)
    if call == "isend":
        dist.isend(x, dst=1).wait()
    if call == "wait":
        work = dist.isend(x, dst=1)
        work.wait()
    if call == "batch_isend_irecv":
        for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, x, 1)]):
            work.wait()


def subgroup():
    dist.init_process_group("gloo")
    even = dist.new_group([0, 2])
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(3), group=even)
    if dist.get_rank() == 2:
        time.sleep(60)


def monitored_barrier():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        dist.monitored_barrier(timeout=timedelta(seconds=60))
    else:
        time.sleep(60)


def uneven_batches():
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))
    for _ in range(3 + dist.get_rank()):
        model(torch.ones(8, 4)).sum().backward()
    if dist.get_rank() == 0:
        time.sleep(60)


def rank_0_evaluates():
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)))
    model(torch.ones(8, 4)).sum().backward()
    if dist.get_rank() == 0:
        model(torch.ones(8, 4))
    else:
        model(torch.ones(8, 4)).sum().backward()
    dist.barrier()


def objects():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        boxes = [None] * dist.get_world_size()
        dist.all_gather_object(boxes, {"loss": 0.5})
    else:
        time.sleep(60)


def without_a_rank():
    if os.environ["RANK"] == "1":
        time.sleep(60)
    dist.init_process_group("gloo")


def before_init():
    while True:
        time.sleep(0.01)


def python_loop():
    dist.init_process_group("gloo")
    n = 0
    while True:
        n += 1


def c_loop():
    dist.init_process_group("gloo")
    return sum(range(10**12))


def one_c_loop():
    dist.init_process_group("gloo")
    x = torch.ones(4)
    if dist.get_rank() == 1:
        sum(range(10**12))
    dist.all_reduce(x)


def stopped():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.barrier()


def one_returned():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        return "done"
    while True:
        time.sleep(0.01)


class Meets:
    def __enter__(self):
        pass

    def __exit__(self, *error):
        dist.barrier()


@contextlib.contextmanager
def meets():
    try:
        yield
    finally:
        dist.barrier()


class Blocks(Exception):
    def __str__(self):
        time.sleep(60)


def waits_after_an_error(how: str):
    """Rank 1 has an error, and waits while it handles it; rank 0 is in another collective."""
    dist.init_process_group("gloo")

    def works(error: Exception):
        if dist.get_rank() == 1:
            raise error
        dist.all_reduce(torch.ones(4))

    if how == "with":
        with Meets():
            works(ValueError("rank 1 is broken"))
    if how == "generator":
        with meets():
            works(OSError(2, "no such file", "weights.pt"))
    if how == "except":
        try:
            works(KeyError("weights"))
        except KeyError:
            dist.barrier()
    if how == "group":
        try:
            works(ExceptionGroup("two things", [ValueError("one"), TypeError("two")]))
        except* ValueError:
            dist.barrier()
    try:
        works({"blocks": Blocks("weights", 3, dist)}.get(how, ValueError("rank 1 is broken")))
    finally:
        dist.barrier()


def sleeps_after_an_error():
    dist.init_process_group("gloo")
    try:
        if dist.get_rank() == 1:
            raise ValueError("rank 1 is broken")
    except ValueError:
        time.sleep(60)
    dist.barrier()


def hangs_without_a_package():
    """All ranks handle the same error, which does no harm; rank 1 sleeps for another reason."""
    dist.init_process_group("gloo")
    try:
        import no_such_package  # noqa: F401
    except ImportError:
        if dist.get_rank() == 1:
            time.sleep(60)
        dist.barrier()


def own_signal_handler():
    signal.signal(signal.SIGUSR1, lambda *_: None)
    time.sleep(60)


class Forever:
    """Its packing never ends."""

    def __reduce__(self):
        while True:
            time.sleep(0.01)


def packs_for_ever():
    return Forever()


def collectives_in_a_thread(how: str):
    """Each rank calls another collective, in a thread that its own lines wait for."""
    dist.init_process_group("gloo")
    call = dist.barrier if dist.get_rank() else lambda: dist.all_reduce(torch.ones(4))
    if how == "pool":
        with ThreadPoolExecutor() as pool:
            pool.submit(call).result()
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join()


def waits_for_a_thread_that_failed():
    """Rank 0's thread should tell the main thread that its file is there, and has an error."""
    dist.init_process_group("gloo")
    there = threading.Event()

    def reads():
        raise OSError(2, "no such file", "weights.pt")

    if dist.get_rank() == 0:
        threading.Thread(target=reads).start()
        there.wait()
    dist.barrier()


def asynchronous_and_busy():
    """Rank 0 has entered a collective, and has something else to do."""
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(4), async_op=True)
    time.sleep(60)


def waits_for_its_own(what: str):
    """No rank stands in a call of torch: rank 0 waits for something of its own."""
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        time.sleep(60)
    if what == "event":
        threading.Event().wait()
    if what == "condition":
        changed = threading.Condition()
        with changed:
            changed.wait()
    if what == "program":
        subprocess.Popen(["sleep", "60"]).wait()
    if what == "process":
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        process.start()
        process.join()
    receives = threading.Thread(target=dist.recv, args=(torch.ones(4), 1), daemon=True)
    receives.start()
    receives.join()
