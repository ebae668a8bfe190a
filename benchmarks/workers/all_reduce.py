"""The smallest worker: join the group, add one number over the ranks, return the sum.

torchrun --standalone --nproc-per-node 4 benchmarks/workers/all_reduce.py
"""

import os
import time

import torch
import torch.distributed as dist


def all_reduce() -> float:
    """The sum of rank + 1 over all ranks; the same on each of them."""
    dist.init_process_group("gloo")
    total = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    return total.item()


def all_reduce_under_spawn(rank: int, ranks: int, port: int, results) -> None:
    """The same for `mp.spawn`, which sets no environment and returns no results."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    results.put((rank, all_reduce()))
    leave()


def leave() -> None:
    """End this process once all ranks are done.

    By os._exit, as gloo can abort while the interpreter shuts down (torch 2.13).
    """
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    # Not print: unbuffered, it writes the newline separately, and two ranks' lines would merge.
    os.write(1, f"{all_reduce()}\n".encode())
    leave()


def time_all_reduces(size: int, repeats: int) -> list[float]:
    """Seconds of each of some all-reduces of so many bytes, from a barrier."""
    dist.init_process_group("gloo")
    tensor, seconds = torch.ones(size // 4), []
    for _ in range(repeats):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor)
        seconds.append(time.perf_counter() - start)
    return seconds
