"""Workers whose traffic is known beforehand."""

import itertools
import sys
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# torch 2.13 warns of the old names.
all_gather_into_tensor = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_tensor = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def empties(count: int, length: int) -> list[torch.Tensor]:
    return [torch.empty(length) for _ in range(count)]


def every_collective() -> None:
    """Each one once, with two float32 a rank and root 1."""
    dist.init_process_group("gloo")
    n, rank, two = dist.get_world_size(), dist.get_rank(), torch.ones(2)
    dist.all_reduce(two)
    dist.all_reduce(two, async_op=True).wait()
    dist.broadcast(two, 1)
    dist.reduce(two, 1)
    dist.all_gather(empties(n, 2), two)
    dist.gather(two, empties(n, 2) if rank == 1 else None, 1)
    dist.scatter(torch.empty(2), empties(n, 2) if rank == 1 else None, 1)
    dist.reduce_scatter(torch.empty(2), empties(n, 2))
    if torch.__version__ >= "2.13":  # gloo has no exchange of lists before
        dist.all_to_all(empties(n, 2), empties(n, 2))
    all_gather_into_tensor(torch.empty(2 * n), two)
    reduce_scatter_tensor(torch.empty(2), torch.ones(2 * n))
    dist.all_to_all_single(torch.empty(2 * n), torch.ones(2 * n))
    dist.barrier()
    dist.monitored_barrier()


def functional_collectives() -> None:
    """The operators that DTensor uses; they return new tensors instead of filling given ones."""
    import torch.distributed._functional_collectives as functional

    dist.init_process_group("gloo")
    group, n, two = dist.group.WORLD, dist.get_world_size(), torch.ones(2)
    gather = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor
    scatter = getattr(functional, "reduce_scatter_single", None) or functional.reduce_scatter_tensor
    functional.all_reduce(two, "sum", group).wait()
    gather(two, 0, group).wait()
    scatter(torch.ones(2 * n), "sum", 0, group).wait()
    functional.broadcast(two, 1, group).wait()
    functional.all_to_all_single(torch.ones(2 * n), None, None, group).wait()


def coalesced() -> None:
    dist.init_process_group("gloo")
    n = dist.get_world_size()
    with dist._coalescing_manager():
        dist.all_reduce(torch.ones(2))
        dist.all_reduce(torch.ones(3, 1))
    with dist._coalescing_manager():
        all_gather_into_tensor(torch.empty(2 * n), torch.ones(2))
        all_gather_into_tensor(torch.empty(3 * n), torch.ones(3))


def dtypes() -> None:
    dist.init_process_group("gloo")
    for dtype in (torch.float64, torch.int8, torch.complex64):
        dist.all_reduce(torch.ones(3, dtype=dtype))
    dist.all_reduce(torch.ones(()))
    dist.all_reduce(torch.ones(0))
    dist.all_reduce(torch.ones(2, 3).to_sparse())


def ring() -> float:
    """Everyone sends to the right and receives from the left; returns what came."""
    dist.init_process_group("gloo")
    n, rank = dist.get_world_size(), dist.get_rank()
    mine, theirs = torch.full((4,), float(rank)), torch.empty(4)
    work = dist.isend(mine, (rank + 1) % n)
    dist.recv(theirs, (rank - 1) % n)
    work.wait()
    calls = [
        dist.P2POp(dist.isend, mine, (rank + 1) % n),
        dist.P2POp(dist.irecv, theirs, (rank - 1) % n),
    ]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    return theirs[0].item()


def from_anyone() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        dist.recv(torch.empty(1))
    else:
        dist.send(torch.ones(1), 0)


def objects() -> None:
    dist.init_process_group("gloo")
    n, rank = dist.get_world_size(), dist.get_rank()
    dist.all_gather_object([None] * n, "x")
    dist.broadcast_object_list(["x"], 0)
    dist.gather_object("x", [None] * n if rank == 0 else None)


def subgroups() -> None:
    """Ranks 1 and 2 of 4 talk among themselves; roots and peers are given in both ways."""
    dist.init_process_group("gloo")
    group, rank = dist.new_group([1, 2]), dist.get_rank()
    if rank in (1, 2):
        dist.broadcast(torch.ones(2), 2, group=group)
        dist.broadcast(torch.ones(2), group_src=0, group=group)
        if rank == 1:
            dist.send(torch.ones(2), group_dst=1, group=group)
        else:
            dist.recv(torch.ones(2), 1, group=group)
    dist.all_reduce(torch.ones(2), group=dist.new_group(list(range(dist.get_world_size()))))


def network(sizes: tuple[int, ...]) -> nn.Sequential:
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
    return nn.Sequential(*layers)


def ddp(sizes: tuple[int, ...], steps: int, **arguments) -> None:
    """Train for some steps."""
    dist.init_process_group("gloo")
    model = DistributedDataParallel(network(sizes), **arguments)  # constructor of ddp
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        loss = model(torch.ones(4, sizes[0])).mean()  # forward of ddp
        optimizer.zero_grad()
        loss.backward()  # backward of ddp
        optimizer.step()  # step of ddp


def ddp_with_batch_norm() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5)))
    for _ in range(2):
        model(torch.randn(4, 3)).mean().backward()


def fsdp() -> None:
    """Two layers, each its own unit, two steps."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = network((8, 12, 6))
    for part in (*model, model):
        fully_shard(part, mesh=mesh)
    for _ in range(2):
        loss = model(torch.ones(4, 8)).mean()  # forward of fsdp
        loss.backward()  # backward of fsdp
    dist.barrier()


def tensor_parallel() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    rows = distribute_tensor(torch.ones(4, 6), mesh, [Shard(1)], src_data_rank=None)
    columns = distribute_tensor(torch.ones(6, 2), mesh, [Shard(0)], src_data_rank=None)
    (rows @ columns).redistribute(mesh, [Replicate()]).to_local()  # partial sums, so all_reduce
    (rows + 1).full_tensor()


def threads() -> None:
    dist.init_process_group("gloo")
    other = threading.Thread(target=speak, args=(3,))
    other.start()
    other.join()
    library = threading.Thread(target=dist.all_reduce, args=(torch.ones(5),))
    library.start()  # started here
    library.join()


def speak(length: int) -> None:
    dist.all_reduce(torch.ones(length))  # in a thread


def data_workers() -> list[int]:
    """A DataLoader with processes of its own: their tensors are no traffic."""
    loader = torch.utils.data.DataLoader(
        list(range(4)), num_workers=1, multiprocessing_context="fork"
    )
    return [batch.item() for batch in loader]


def caught() -> str:
    """A collective that fails at once, and is caught, was asked for; then goes on."""
    dist.init_process_group("gloo")
    try:
        dist.all_reduce(torch.ones(2, dtype=torch.float8_e5m2))
    except RuntimeError as error:
        message = type(error).__name__
    dist.all_reduce(torch.ones(1))
    return message


def alone(a: int, *, b: int) -> int:
    """No group, no traffic; keyword and positional arguments."""
    return a + b


def compiled() -> int:
    """A compiled function with a collective inside; returns how many frames were compiled."""
    from torch._dynamo.utils import counters

    dist.init_process_group("gloo")

    @torch.compile(backend="eager")
    def doubled_sum(x):
        x = 2 * x
        dist.all_reduce(x)
        return x + 1

    doubled_sum(torch.ones(3))
    return counters["frames"]["ok"]


def leaves() -> None:
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    sys.exit(0)


def fails() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        raise KeyError("a key of the reader's own")
    dist.all_reduce(torch.ones(1))


def prints() -> None:
    print("hello from the worker")


def unsendable():
    return (n for n in range(3))
