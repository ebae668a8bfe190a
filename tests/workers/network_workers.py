"""Workers for test_network.py; they do not know on which network they run."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.workers import all_reduce


def fastest_all_reduce(size: int, repeats: int = 7) -> float:
    """Seconds of the fastest of some all-reduces of so many bytes."""
    return min(all_reduce.time_all_reduces(size, repeats))


def every_call() -> dict[str, tuple[float, list]]:
    """For each call its seconds and what this rank then holds; 4 ranks, 4 kB a rank and tensor."""
    dist.init_process_group("gloo")
    rank, ranks, n = dist.get_rank(), dist.get_world_size(), 1000
    results = {}

    def measure(name: str, call, *tensors: torch.Tensor) -> None:
        dist.barrier()
        start = time.perf_counter()
        call()
        results[name] = (
            time.perf_counter() - start,
            [tensor[:: max(1, len(tensor) // 4)].tolist() for tensor in tensors],
        )

    def mine() -> torch.Tensor:
        return torch.full((n,), float(rank + 1))

    def of_all() -> list[torch.Tensor]:
        return [torch.full((n,), 10.0 * rank + other) for other in range(ranks)]

    value, parts, many = mine(), of_all(), [torch.zeros(n) for _ in range(ranks)]
    measure("all_reduce", lambda: dist.all_reduce(value), value)
    value = mine()
    measure("broadcast", lambda: dist.broadcast(value, 2), value)
    value = mine()
    measure("reduce", lambda: dist.reduce(value, 1), *([value] if rank == 1 else []))
    measure("all_gather", lambda: dist.all_gather(many, mine()), *many)
    whole = torch.zeros(n * ranks)
    measure("all_gather_into_tensor", lambda: dist.all_gather_into_tensor(whole, mine()), whole)
    value = torch.zeros(n)
    measure("reduce_scatter", lambda: dist.reduce_scatter(value, parts), value)
    measure(
        "reduce_scatter_tensor", lambda: dist.reduce_scatter_tensor(value, torch.cat(parts)), value
    )
    gathered = many if rank == 0 else None
    measure("gather", lambda: dist.gather(mine(), gathered, 0), *(gathered or []))
    scattered = parts if rank == 3 else None
    measure("scatter", lambda: dist.scatter(value, scattered, 3), value)
    if torch.__version__ >= "2.13":  # gloo has no exchange of lists before
        measure("all_to_all", lambda: dist.all_to_all(many, parts), *many)
    measure("all_to_all_single", lambda: dist.all_to_all_single(whole, torch.cat(parts)), whole)

    def in_pairs() -> None:
        if rank % 2:
            dist.send(mine(), rank - 1)
        else:
            dist.recv(value, rank + 1)

    def from_any() -> None:
        if rank == 3:
            dist.send(mine(), 0)
        if rank == 0:
            dist.recv(value)

    def exchange() -> None:
        operations = [
            dist.P2POp(dist.isend, mine(), (rank + 1) % ranks),
            dist.P2POp(dist.irecv, value, (rank - 1) % ranks),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()

    measure("send and recv", in_pairs, value)
    measure("from any", from_any, value)
    measure("around the ring", exchange, value)
    objects: list = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank})
    results["objects"] = (0.0, objects)
    return results


def a_late_rank(seconds: float) -> float:
    """Seconds from when the last rank, a late one, enters an all-reduce until this rank has it."""
    dist.init_process_group("gloo")
    tensor = torch.ones(25_000)
    dist.all_reduce(tensor)
    dist.barrier()
    start = time.perf_counter()
    if dist.get_rank() == dist.get_world_size() - 1:
        time.sleep(seconds)
    dist.all_reduce(tensor)
    return time.perf_counter() - start - seconds


def two_groups_at_once() -> tuple[float, float, bool]:
    """Seconds of an all-reduce, of two at once in two groups, and whether one is done at once."""
    dist.init_process_group("gloo")
    second_group = dist.new_group()
    first, second = torch.ones(25_000), torch.ones(25_000)
    dist.all_reduce(first, group=second_group)
    dist.barrier()
    start = time.perf_counter()
    dist.all_reduce(first)
    alone = time.perf_counter() - start
    dist.barrier()
    start = time.perf_counter()
    works = [
        dist.all_reduce(first, async_op=True),
        dist.all_reduce(second, group=second_group, async_op=True),
    ]
    early = works[0].is_completed()
    for work in works:
        work.wait()
    both = time.perf_counter() - start
    assert all(work.is_completed() for work in works)
    return alone, both, early


def model(width: int = 256, depth: int = 8) -> nn.Module:
    """The same on all ranks."""
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth)])


def parameter_sums(kind: str, steps: int = 3) -> list[float]:
    """The sum of each parameter after some steps with DDP, ZeRO-1 or FSDP2."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer

    dist.init_process_group("gloo")
    net = model(64, 3)
    if kind == "fsdp":
        for block in net:
            fully_shard(block)
        fully_shard(net)
    wrapped_net = net if kind == "fsdp" else DistributedDataParallel(net, bucket_cap_mb=0.02)
    if kind == "zero":
        optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=1e-2)
    else:
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        wrapped_net(torch.randn(16, 64, generator=generator)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    full = [p.full_tensor() if kind == "fsdp" else p for p in net.parameters()]
    return [p.double().sum().item() for p in full]


def exposed_seconds(bucket_cap_mb: float, steps: int = 5) -> float:
    """Seconds from the last gradient to the end of backward, the fastest of some steps.

    A gradient is there before the all-reduce that sends it; so this is communication that no
    computing hides.
    """
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    net = DistributedDataParallel(model(650, 10), bucket_cap_mb=bucket_cap_mb)
    last = []
    next(net.parameters()).register_post_accumulate_grad_hook(
        lambda _: last.append(time.perf_counter())
    )
    inputs, seconds = torch.randn(768, 650), []
    for _ in range(steps):
        dist.barrier()
        net(inputs).sum().backward()
        seconds.append(time.perf_counter() - last[-1])
    return min(seconds[2:])  # buckets are made anew after the first step


def leaves_early() -> None:
    """Rank 1 fails while the others wait for it."""
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        raise ValueError("no more")
    dist.all_reduce(torch.ones(3))


def skips_all_reduce() -> None:
    """Rank 1 leaves an all-reduce out."""
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(3))
    if dist.get_rank() != 1:
        dist.all_reduce(torch.ones(3))
    else:
        time.sleep(60)


def visible_gpus() -> str:
    return os.environ["CUDA_VISIBLE_DEVICES"]


def says_nothing() -> int:
    """No communication at all."""
    return 7
