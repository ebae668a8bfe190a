"""Functions for `mp.spawn`: they take rank and world size, and write down where to meet."""

import os
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel


def total() -> float:
    """What an all-reduce of rank + 1 gives."""
    x = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(x)
    return x.item()


def own_port(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = DistributedDataParallel(nn.Linear(4, 2))
    model(torch.ones(3, 4)).sum().backward()
    result = total()
    dist.destroy_process_group()
    return result


def own_url(rank, size, url="tcp://127.0.0.1:23456"):
    dist.init_process_group("gloo", init_method=url, rank=rank, world_size=size)
    return total()


def with_more(rank, world_size, scale, *, shift=0):
    """As in a course's tests: arguments behind rank and world size."""
    return own_port(rank, world_size) * scale + shift


def keywords_only(*, rank, world_size):
    return rank, world_size


def with_defaults(path, rank=0, world_size=1):
    return path, rank, world_size


def as_in_a_tutorial(rank, size, fn, backend="gloo"):
    dist.init_process_group(backend, rank=rank, world_size=size)
    return fn()


def size_is_a_size(size, repeats=2):
    return size, repeats


async def awaited(rank, world_size):
    return rank


def local_rank_first(local_rank, epochs):
    return local_rank, epochs


def joins_again(rounds):
    """Leaves its group and joins a new one; every test suite does."""
    sums = []
    for _ in range(rounds):
        dist.init_process_group("gloo")
        sums.append(total())
        pair = dist.new_group()
        dist.all_reduce(torch.ones(1), group=pair)
        dist.barrier()
        dist.destroy_process_group()
    return sums


def meshes(rounds):
    """Each mesh makes the default group, and leaving it ends the mesh."""
    sums = []
    for _ in range(rounds):
        mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
        ones = torch.ones(1)
        dist.all_reduce(ones, group=mesh.get_group())
        sums.append(ones.item())
        dist.destroy_process_group()
    return sums


def all_are_rank_0(world_size):
    dist.init_process_group("gloo", rank=0, world_size=world_size)


def all_are_rank_0_by_environment():
    os.environ["RANK"] = "0"
    dist.init_process_group("gloo")


def rank_0_in_a_file(path):
    dist.init_process_group(
        "gloo", init_method=f"file://{os.path.abspath(path)}", rank=0, world_size=2
    )


def one_process_store():
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=int(os.environ["RANK"]), world_size=2)


def one_too_many():
    dist.init_process_group("gloo", world_size=3, rank=int(os.environ["RANK"]))


def nccl(rank, world_size):
    dist.init_process_group("nccl", rank=rank, world_size=world_size)


def to_rank(rank):
    nn.Linear(2, 2).to(rank)


def set_device(rank):
    torch.cuda.set_device(rank)


def device_ids(rank):
    dist.init_process_group("gloo")
    DistributedDataParallel(nn.Linear(2, 2), device_ids=[rank])


def spawns():
    mp.spawn(own_port, args=(2,), nprocs=2)


def starts_ranks():
    children = [mp.Process(target=own_port, args=(rank, 2)) for rank in range(2)]
    for child in children:
        child.start()


def saves_late(folder):
    """Returns while a thread still writes."""
    path = os.path.join(folder, os.environ["RANK"])
    threading.Thread(target=lambda: (time.sleep(0.8), open(path, "w").close())).start()


def leaves_a_child():
    mp.get_context("fork").Process(target=time.sleep, args=(60,)).start()


def starts_processes(start_method):
    """A group of its own below a rank, at a port of its own."""
    context = mp.get_context(start_method)
    children = [context.Process(target=in_a_child, args=(rank, 2)) for rank in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    return [child.exitcode for child in children]


def in_a_child(rank, world_size):
    port = int(os.environ["FREE_PORT"])
    url = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=url, rank=rank, world_size=world_size)
    right = total() == 3.0
    dist.barrier()
    os._exit(0 if right else 1)  # gloo can abort while Python shuts down (torch 2.13)


def replaces_itself(program):
    dist.init_process_group("gloo")
    os.execvp(program[0], program)


def unpack(n):
    """Named like a function of the launcher, and endless."""
    while n:
        pass
