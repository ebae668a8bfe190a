"""Workers for chapter 03: its own functions on real ranks, and what its page says of groups."""

import os
import time
from datetime import timedelta

import psutil
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from ddp_workbook.chapters import process_groups
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup

STORES = []


def mesh_of(in_a_node: int | None = None) -> tuple[list[list[int]], list[int], list[int]]:
    """The mesh, and the ranks of this one's row and column; `in_a_node`: as on such nodes."""
    device = setup()
    if in_a_node:
        os.environ["LOCAL_WORLD_SIZE"] = str(in_a_node)
    mesh = process_groups.make_mesh(device)
    row, column = (mesh.get_group(dimension) for dimension in ("gpu", "node"))
    cleanup()
    return mesh.mesh.tolist(), ranks_of(row), ranks_of(column)


def ranks_of(group: dist.ProcessGroup) -> list[int]:
    """Also of a destroyed group: only its size, as a list of None."""
    try:
        return dist.get_process_group_ranks(group)
    except (KeyError, ValueError, RuntimeError):
        return [None] * group.size()


def listens(init_method: str) -> int:
    """At how many ports this rank listens, once it has met the others there over gloo."""
    meet_at(init_method)
    found = psutil.Process().net_connections("tcp")
    dist.barrier()
    return sum(one.status == "LISTEN" for one in found)


def meet_fakes(seconds: float) -> float:
    """Join a group of the fake backend; rank 1 is late. How long init_process_group took."""
    rank = int(os.environ["RANK"])
    time.sleep(seconds * rank)
    start = time.monotonic()
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
    return time.monotonic() - start


def group_error(*names: str) -> str:
    """What a mesh says that is asked for one group of the slice with these names."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("node", "gpu"))
    try:
        mesh[names].get_group()
    except (KeyError, RuntimeError) as error:
        return str(error)
    return ""


def two_of_three() -> str:
    """What ranks 0 and 1 are told when rank 2 does not come to the first meeting."""
    if os.environ["RANK"] == "2":
        return "did not come"
    try:
        dist.init_process_group("gloo", timeout=timedelta(seconds=0.5))
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    return ""


def two_are_late(wait_all_ranks: bool) -> str:
    """What this rank's monitored_barrier says; ranks 1 and 2 come when it is over."""
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() in (1, 2):
        time.sleep(2)
    try:
        limit = timedelta(seconds=0.5)
        dist.monitored_barrier(timeout=limit, wait_all_ranks=wait_all_ranks)
    except RuntimeError as error:
        return str(error)
    return ""


def tickets(times: int) -> list[int]:
    """What this rank's calls of `add` return."""
    store, *_ = next(dist.rendezvous("env://"))
    return [store.add("tickets", 1) for _ in range(times)]


def get_missing_key() -> tuple[str, float]:
    """How a `get` of a key that is never written ends, and after how many seconds."""
    store, *_ = next(dist.rendezvous("env://"))
    store.set_timeout(timedelta(seconds=0.3))
    start = time.monotonic()
    try:
        store.get("never")
    except dist.DistStoreError as error:
        return str(error), time.monotonic() - start
    return "", 0.0


def is_in_store(place: str) -> bool:
    """Whether an address of this rank is in the store already; it is afterwards."""
    rank = int(os.environ["RANK"])
    store, *_ = next(dist.rendezvous(place, rank, int(os.environ["WORLD_SIZE"])))
    STORES.append(store)  # the end of a store removes its file; a rank that is killed has no end
    is_there = store.check([f"address of {rank}"])
    store.set(f"address of {rank}", "127.0.0.1")
    return is_there


def meet_at(init_method: str, rank: int | None = None, seconds: float = 20) -> float:
    """The sum of the ranks that met there; `rank` says what every one of them calls itself."""
    rank = int(os.environ["RANK"]) if rank is None else rank
    size = int(os.environ["WORLD_SIZE"])
    limit = timedelta(seconds=seconds)
    dist.init_process_group(
        "gloo", init_method=init_method, rank=rank, world_size=size, timeout=limit
    )
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    return total.item()


def knock(port: int) -> None:
    """As rank 1 of 2, with a limit of half a second, join where something listens but no store."""
    del os.environ["TORCHELASTIC_USE_AGENT_STORE"]
    meet_at(f"tcp://127.0.0.1:{port}", rank=1, seconds=0.5)


def two_pairs() -> tuple[float, int]:
    """Sum inside [0, 3] or [1, 2] of 10 to the rank, and this rank's number there."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    outer, inner = dist.new_group([0, 3]), dist.new_group([1, 2])
    mine = outer if rank in (0, 3) else inner
    x = torch.tensor([10.0**rank])
    dist.all_reduce(x, group=mine)
    dist.barrier()
    return x.item(), dist.get_rank(mine)


def members_only() -> float:
    """A group that only its members make, and a sum in it."""
    dist.init_process_group("gloo")
    x = torch.tensor([float(dist.get_rank())])
    if dist.get_rank() in (0, 3):
        dist.all_reduce(x, group=dist.new_group([0, 3]))
    dist.barrier()
    return x.item()


def in_another_order() -> None:
    """All ranks make both groups, rank 1 the other one first."""
    dist.init_process_group("gloo")
    wanted = [[0, 1], [1, 2]]
    for members in wanted[::-1] if dist.get_rank() == 1 else wanted:
        dist.new_group(members)


def make_groups_unevenly() -> None:
    """Only the members make a group; then all ranks make one."""
    dist.init_process_group("gloo")
    if dist.get_rank() in (0, 3):
        dist.new_group([0, 3])
    dist.barrier()
    dist.new_group([0, 1, 2, 3])  # all


def members_of_unequally_many_groups() -> None:
    """Ranks 1 and 2 make a group by themselves; rank 1 is in one more group than rank 2."""
    dist.init_process_group("gloo")
    dist.new_group([0, 1])
    if dist.get_rank() in (1, 2):
        dist.new_group([1, 2], use_local_synchronization=True)


def group_source() -> float:
    """A broadcast whose source is named by its number in the group."""
    dist.init_process_group("gloo")
    group = dist.new_group([1, 2])
    x = torch.tensor([float(dist.get_rank())])
    if dist.get_rank() in (1, 2):
        dist.broadcast(x, group=group, group_src=0)
    dist.barrier()
    return x.item()


def visible_gpus() -> list[str]:
    """The identities of the GPUs that this process sees, in its own order."""
    count = torch.cuda.device_count()
    return [str(torch.cuda.get_device_properties(index).uuid) for index in range(count)]


if __name__ == "__main__":
    print(*visible_gpus())
