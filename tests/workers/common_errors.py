"""Workers with errors that people ask about: DDP, collectives, FSDP, DTensor, checkpoints, files.

A few have the error's cause repaired, or another error beside it, and are told nothing.
"""

import importlib
import mmap
import os
import pickle
import resource
import subprocess
from argparse import Namespace
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, DistributedSampler

X = torch.ones(2, 2)


def start() -> int:
    dist.init_process_group("gloo")
    return dist.get_rank()


def linear(**kwargs) -> nn.Linear:
    return nn.Linear(2, 2, **kwargs)


# DDP and autograd. A DDP that no name holds is gone before backward, and reports nothing there.


class UsedTwice(nn.Module):
    """Its second layer runs twice, each time under activation checkpointing."""

    def __init__(self, use_reentrant: bool):
        super().__init__()
        self.first, self.second, self.use_reentrant = linear(), linear(), use_reentrant

    def forward(self, x):
        x = self.first(x)
        for _ in range(2):
            x = checkpoint(self.second, x, use_reentrant=self.use_reentrant)
        return x


def checkpoints_by_reentrance():
    start()
    model = DDP(UsedTwice(use_reentrant=True))
    model(X).sum().backward()


def checkpoints_without_reentrance():
    start()
    model = DDP(UsedTwice(use_reentrant=False))
    model(X).sum().backward()


def checkpoints_a_static_graph():
    start()
    model = DDP(UsedTwice(use_reentrant=True), static_graph=True)
    model(X).sum().backward()


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.left, self.right = linear(), linear(), linear()

    def forward(self, x):
        x = self.trunk(x)
        return self.left(x).sum(), self.right(x).sum()


def goes_backward_for_each_loss():
    start()
    model = DDP(TwoHeads())
    left, right = model(X)
    left.backward(retain_graph=True)
    right.backward()


def goes_backward_for_the_sum():
    start()
    model = DDP(TwoHeads())
    left, right = model(X)
    (left + right).backward()


class FirstOnly(nn.Sequential):
    def forward(self, x):
        return self[0](x)


def uses_a_parameter_outside_forward():
    """DDP has counted the second layer as unused, and then its gradients come."""
    start()
    model = DDP(FirstOnly(linear(), linear()), find_unused_parameters=True)
    (model(X) + model.module[1](X)).sum().backward()


def wraps_a_frozen_model():
    start()
    DDP(linear().requires_grad_(False))


def wraps_other_sizes():
    DDP(nn.Linear(2, 2 + start()))


def wraps_another_layout():
    model = linear()
    if start() == 1:
        model.weight = nn.Parameter(torch.ones(2, 2).t())
    DDP(model)


def wraps_more_layers():
    DDP(nn.Sequential(*(linear() for _ in range(1 + start()))))


def trains_on_inference_tensors():
    start()
    with torch.inference_mode():
        x = torch.ones(2, 2)
    DDP(linear())(x).sum().backward()


def changes_an_inference_tensor():
    with torch.inference_mode():
        x = torch.ones(2)
    x.add_(1)


def detaches_the_loss():
    start()
    DDP(linear())(X).sum().detach().backward()


def trains_on_what_was_gathered():
    start()
    y = DDP(linear())(X)
    parts = [torch.empty_like(y) for _ in range(2)]
    dist.all_gather(parts, y)
    torch.cat(parts).sum().backward()


def steps_before_backward():
    start()
    model = DDP(nn.Sequential(linear(), linear()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(X).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    loss.backward()


def goes_backward_twice():
    start()
    loss = DDP(linear())(X).square().sum()
    loss.backward()
    loss.backward()


def divides_a_parameter():
    model = linear()
    model.weight /= 2


def trains_on_one_sample():
    start()
    DDP(nn.Sequential(linear(), nn.BatchNorm1d(2)))(X[:1])


def feeds_float64():
    start()
    DDP(linear())(X.double())


def names_the_bucket_otherwise():
    start()
    DDP(linear()).register_comm_hook(None, lambda state, gradients: gradients)


class RunsShorter(nn.Module):
    """Each call has one layer less, also the one in backward."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        for _ in range(3 - self.calls):
            x = x.exp()
        return x


def recomputes_something_else():
    x = X.clone().requires_grad_()
    checkpoint(RunsShorter(), x, use_reentrant=False).sum().backward()


def sets_the_epoch_of_a_loader():
    DataLoader(X).set_epoch(1)


def shuffles_beside_a_sampler():
    start()
    DataLoader(X, sampler=DistributedSampler(X), shuffle=True)


def optimizes_nothing():
    torch.optim.SGD(nn.ReLU().parameters(), lr=0.1)


# Collectives


def gathers_other_shapes():
    rank = start()
    dist.all_gather([torch.empty(2), torch.empty(3)], torch.ones(2 + rank))


def gathers_into_a_short_output():
    start()
    dist.all_gather_into_tensor(torch.empty(3), torch.ones(2))


def scatters_other_shapes():
    parts = [torch.ones(3), torch.ones(3)]
    dist.scatter(torch.empty(2), parts if start() == 0 else None)


def reduce_scatters_an_odd_length():
    start()
    dist.reduce_scatter_tensor(torch.empty(2), torch.ones(5))


def reduce_scatters_other_shapes():
    start()
    dist.reduce_scatter(torch.empty(2), [torch.ones(3), torch.ones(3)])


def exchanges_a_list_of_other_shapes():
    start()
    dist.all_to_all([torch.empty(2), torch.empty(2)], [torch.ones(3), torch.ones(3)])


def splits(input_sizes: list[int], output_sizes: list[int]):
    start()
    dist.all_to_all_single(torch.empty(4), torch.ones(4), output_sizes, input_sizes)


def sends_itself_less_than_it_expects():
    splits([1, 3], [2, 2])


def splits_less_than_there_is():
    splits([1, 1], [2, 2])


def splits_for_one_rank():
    splits([4], [4])


def broadcasts_from_nobody():
    start()
    dist.broadcast(torch.ones(2), src=2)


def reduces_to_nobody():
    start()
    dist.reduce(torch.ones(2), dst=5)


def gathers_everywhere():
    start()
    dist.gather(torch.ones(2), [torch.empty(2), torch.empty(2)])


def reduces_a_missing_gradient():
    start()
    dist.all_reduce(linear().weight.grad)


def gathers_numbers():
    start()
    dist.all_gather([0, 0], torch.ones(1))


def waits_for_a_finished_call():
    start()
    dist.all_reduce(torch.ones(1)).wait()


def averages_bools():
    start()
    dist.all_reduce(torch.ones(2, dtype=torch.bool), op=dist.ReduceOp.AVG)


def averages_integers():
    start()
    dist.all_reduce(torch.ones(2, dtype=torch.int64), op=dist.ReduceOp.AVG)


def averages_floats():
    start()
    dist.all_reduce(torch.ones(2), op=dist.ReduceOp.AVG)


def scales_before_the_sum():
    start()
    dist.all_reduce(torch.ones(2), op=dist._make_nccl_premul_sum(2.0))


def sums_int16():
    start()
    dist.all_reduce(torch.ones(2, dtype=torch.int16))


def sends_a_column():
    column = torch.ones(2, 2)[:, 0]
    if start() == 0:
        dist.send(column, dst=1)
    else:
        dist.recv(column, src=0)


def exchanges_a_column():
    start()
    dist.all_to_all_single(torch.empty(2), torch.ones(2, 2)[:, 0])


def splits_the_group():
    start()
    dist.split_group(split_ranks=[[0], [1]])


def waits_for_a_key():
    start()
    store = dist.distributed_c10d._get_default_store()
    store.wait(["never set"], timedelta(seconds=0.1))


def misses_the_monitored_barrier():
    if start() == 0:
        dist.monitored_barrier(timeout=timedelta(seconds=0.1))
    dist.barrier()


def mismatches_in_detail():
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level_from_env()
    if start() == 0:
        dist.all_reduce(torch.ones(2))
    else:
        dist.broadcast(torch.ones(2), src=0)


# fully_shard, DTensor and DeviceMesh


def sharded(model: nn.Module | None = None) -> nn.Module:
    start()
    return fully_shard(model or nn.Sequential(linear(), linear()))


def sharded_tensor():
    start()
    return distribute_tensor(torch.ones(4, 4), init_device_mesh("cpu", (2,)), [Shard(0)])


def calls_a_layer_of_a_sharded_model():
    sharded()[0](X)


def adds_a_plain_tensor():
    sharded_tensor() + torch.ones(4, 4)


def loads_a_plain_state():
    sharded(linear()).load_state_dict(linear().state_dict())


def loads_a_sharded_state():
    linear().load_state_dict(sharded(linear()).state_dict())


def loads_shards():
    state = sharded(linear()).state_dict()
    linear().load_state_dict({name: value.to_local() for name, value in state.items()})


def accumulates_with_no_sync():
    with sharded().no_sync():
        pass


def clips_by_a_method():
    sharded().clip_grad_norm_(1.0)


def reduces_a_dtensor():
    dist.all_reduce(sharded_tensor())


def wraps_a_sharded_model():
    DDP(sharded())


def unfolds_a_dtensor():
    sharded_tensor().unfold(0, 2, 1)


def finds_the_nonzeros_of_a_dtensor():
    sharded_tensor().nonzero()


def multiplies_wrong_shapes():
    sharded_tensor() @ distribute_tensor(
        torch.ones(3, 3), init_device_mesh("cpu", (2,)), [Shard(0)]
    )


def mixes_meshes():
    x = sharded_tensor()
    x + distribute_tensor(torch.ones(4, 4), init_device_mesh("cpu", (2, 1)), [Shard(0), Shard(1)])


def places_on_one_of_two_dimensions():
    start()
    distribute_tensor(torch.ones(4, 4), init_device_mesh("cpu", (2, 1)), [Shard(0)])


def makes_an_array_of_a_dtensor():
    sharded_tensor().numpy()


def gathers_what_is_not_sharded():
    linear().weight.full_tensor()


def wants_a_large_mesh():
    start()
    init_device_mesh("cpu", (2, 2))


def names_no_dimension():
    start()
    init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))["tp"]


def shards_two_dtypes():
    sharded(nn.Sequential(linear(), linear(dtype=torch.bfloat16)))(X)


def flattens_two_dtypes():
    start()
    FullyShardedDataParallel(
        nn.Sequential(linear(), linear(dtype=torch.bfloat16)), device_id=torch.device("cpu")
    )


def calls_a_layer_inside_fsdp1():
    start()
    model = FullyShardedDataParallel(
        nn.Sequential(nn.Embedding(4, 2)), device_id=torch.device("cpu"), use_orig_params=True
    )
    model.module[0](torch.tensor([1]))


def shards_the_root_first():
    model = sharded()
    fully_shard(model[0])
    model(X)


def shards_a_list():
    sharded(nn.ModuleList([linear()]))


def trains_on_the_meta_device():
    sharded(linear(device="meta"))(X)


# Checkpoints and files


def loads_a_compiled_state():
    state = {f"_orig_mod.{name}": value for name, value in linear().state_dict().items()}
    linear().load_state_dict(state)


def loads_too_little():
    linear().load_state_dict({"weight": X})


def loads_another_optimizer():
    state = torch.optim.Adam(linear().parameters()).state_dict()
    torch.optim.Adam(nn.Sequential(linear(), linear()).parameters()).load_state_dict(state)


def saved_and_loaded(loaded: dict, folder: str = "checkpoint"):
    """Save a model with DCP in the current folder, which is the test's, and load it."""
    start()
    dcp.save({"model": linear().state_dict()}, checkpoint_id=folder)
    dcp.load(loaded, checkpoint_id=folder)


def loads_what_was_not_saved():
    saved_and_loaded({"net": linear().state_dict()})


def loads_an_optimizer_that_has_stepped():
    """Its state was empty when it was saved."""
    start()
    model = linear()
    optimizer = torch.optim.Adam(model.parameters())
    dcp.save({"optimizer": optimizer.state_dict()}, checkpoint_id="checkpoint")
    model(X).sum().backward()
    optimizer.step()
    dcp.load({"optimizer": optimizer.state_dict()}, checkpoint_id="checkpoint")


def loads_another_size():
    saved_and_loaded({"model": nn.Linear(3, 2).state_dict()})


def saves_in_two_folders():
    saved_and_loaded({"model": linear().state_dict()}, f"checkpoint {os.environ['RANK']}")


def own_file() -> str:
    return f"state {os.environ['RANK']}.pt"


def loads_an_object():
    torch.save({"arguments": Namespace(epochs=3)}, own_file())
    torch.load(own_file())


def loads_half_a_file():
    torch.save(torch.ones(100), own_file())
    os.truncate(own_file(), 500)
    torch.load(own_file())


def loads_an_empty_file():
    open(own_file(), "w").close()
    torch.load(own_file())


def unpickles_an_empty_file():
    pickle.loads(b"")


def loads_a_folder():
    torch.load(".")


def saves_on_a_full_disk():
    torch.save(torch.ones(1000), "/dev/full")


def writes_on_a_full_disk():
    with open("/dev/full", "w") as file:
        file.write("loss 0.1")


def reads_a_shortened_file():
    with open(own_file(), "w+b") as file:
        file.truncate(mmap.PAGESIZE)
        memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        file.truncate(0)
        memory[0]  # SIGBUS


def exchanges_more_than_its_peer_expects():
    sizes = ([1, 3], [1, 2]) if start() == 0 else ([2, 2], [2, 2])
    dist.all_to_all_single(torch.empty(sum(sizes[1])), torch.ones(4), sizes[1], sizes[0])


def broadcasts_lists_of_two_lengths():
    dist.broadcast_object_list([None] * (1 + start()), src=1)


def makes_a_folder_twice():
    rank = start()
    if rank == 0:
        os.mkdir("run")
    dist.barrier()
    os.mkdir("run")


class Exits(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        os._exit(1)


def loses_a_loader_worker():
    next(iter(DataLoader(Exits(), num_workers=1)))


def opens_too_many_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
    [open("/dev/null") for _ in range(60)]  # noqa: SIM115


def asks_nvidia_smi():
    subprocess.check_output(["nvidia-smi", "-L"])


def imports_triton():
    importlib.import_module("triton.language")
