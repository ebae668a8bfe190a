"""Workers that hang, and others that only seem to, for the proofs of a hang."""

import os
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist


def waits_for_work():
    dist.init_process_group("gloo")
    work = dist.irecv(torch.ones(4), src=1 - dist.get_rank())
    work.wait()


def new_group_by_one():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        dist.new_group([0, 1])
    dist.barrier()


def loop_on_rank_1():
    dist.init_process_group("gloo")
    n = 0
    while dist.get_rank() == 1:
        n += 1
    dist.barrier()


def child_loops():
    subprocess.run([sys.executable, "-c", "while True: pass"])


def sleeps():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        time.sleep(1000)
    dist.barrier()


def sleeps_in_a_thread():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        thread = threading.Thread(target=time.sleep, args=(1000,))
        thread.start()
        thread.join()
    dist.barrier()


def one_returns_before_it_connects():
    if os.environ["RANK"] == "0":
        dist.init_process_group("gloo")


def returns_before_the_barrier():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        dist.barrier()


def polls_on_rank_0():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        work = dist.irecv(torch.ones(4), src=1)
        while not work.is_completed():
            time.sleep(0.001)
    dist.barrier()


def polls_everywhere():
    dist.init_process_group("gloo")
    work = dist.irecv(torch.ones(4), src=1 - dist.get_rank())
    while not work.is_completed():
        time.sleep(0.01)


def compute(seconds: float) -> None:
    """Take this much of the processor's time, however long that lasts."""
    x = torch.rand(64, 64)
    while time.process_time() < seconds:
        x = torch.tanh(x @ x)


def computes_on_rank_1(seconds: float = 2.0) -> float:
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        compute(seconds)
    x = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(x)
    return x.item()


def short_sleeps(rounds: int = 20) -> float:
    dist.init_process_group("gloo")
    x = torch.ones(1)
    for number in range(rounds):
        if dist.get_rank() == number % 2:
            time.sleep(0.15)
        dist.all_reduce(x)
    return x.log2().item()


def passes_on(hops: int = 2000) -> int:
    """Ranks that always wait for each other, and that no flight record shows at work."""
    dist.init_process_group("gloo")
    x, rank = torch.zeros(1), dist.get_rank()
    for _ in range(hops):
        if rank == 0:
            dist.send(x + 1, dst=1)
            dist.recv(x, src=1)
        else:
            dist.recv(x, src=0)
            dist.send(x, dst=0)
    return int(x)


def child_computes(seconds: float = 0.8) -> str:
    program = f"import time\nwhile time.process_time() < {seconds}: pass\nprint('done')"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return run.stdout.strip()


def loop_in_packing():
    class Forever:
        def __reduce__(self):
            while True:
                pass

    return Forever()


def large_broadcasts(times: int = 6) -> float:
    dist.init_process_group("gloo")
    x = torch.full((50_000_000,), 1.0 - dist.get_rank())
    for _ in range(times):
        dist.broadcast(x, src=0)
    return x[-1].item()
