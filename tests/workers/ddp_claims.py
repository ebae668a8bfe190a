"""Workers for what notebook 02 says of DistributedDataParallel."""

import os
import time
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def network(seed: int | None = None) -> nn.Sequential:
    """A model with parameters and buffers, from the rank's own seed if none is given."""
    torch.manual_seed(dist.get_rank() if seed is None else seed)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))


def rows() -> torch.Tensor:
    """Eight rows that every rank has for itself."""
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(dist.get_rank()))


def two_steps(**arguments) -> list[torch.Tensor]:
    """The gradients of the second of two steps, with these arguments of the constructor."""
    dist.init_process_group("gloo")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # deprecated arguments
        ddp = DistributedDataParallel(network(), **arguments)  # constructor
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        scores = ddp(rows())  # forward
        scores.square().mean().backward()  # backward
        optimizer.step()
    dist.barrier()
    return [parameter.grad.clone() for parameter in ddp.parameters()]


def in_a_mesh() -> float:
    """The gradient that ranks 0 and 1, and 2 and 3, average with a mesh each; each has its rank."""
    from torch.distributed.device_mesh import DeviceMesh

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    meshes = [DeviceMesh("cpu", [0, 1]), DeviceMesh("cpu", [2, 3])]
    layer = nn.Linear(1, 1, bias=False)
    ddp = DistributedDataParallel(layer, device_mesh=meshes[rank // 2])
    ddp(torch.full((1, 1), float(rank))).sum().backward()
    return layer.weight.grad.item()


def delay_last_weight() -> None:
    """The last layer's weight travels apart, set off by the gradient of the first layer's."""
    dist.init_process_group("gloo")
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    apart = [("1.weight", model[1].weight)]
    ddp = DistributedDataParallel(
        model, delay_all_reduce_named_params=apart, param_to_hook_all_reduce=model[0].weight
    )
    ddp(rows()).sum().backward()
    dist.barrier()


def copies(**arguments) -> dict[str, int]:
    """How often the operators that copy several or single tensors run in a backward pass."""
    dist.init_process_group("gloo")
    ddp = DistributedDataParallel(network(), **arguments)
    ddp(rows()).sum().backward()
    ddp.zero_grad()
    loss = ddp(rows()).sum()
    with torch.profiler.profile() as profile:
        loss.backward()
    dist.barrier()
    names = [event.name for event in profile.events()]
    return {name: names.count(f"aten::{name}") for name in ("_foreach_copy_", "copy_")}


def constructor_error(kind: str) -> str:
    """What the constructor, or the first step, says to something that it cannot do on a CPU."""
    from torch.nn.parallel.distributed import _MixedPrecision

    dist.init_process_group("gloo")
    model = nn.Linear(1, 1)
    if kind == "frozen":
        model.requires_grad_(False)
    arguments = {
        "frozen": {},
        "device_ids": {"device_ids": [0]},
        "output_device": {"output_device": 1},
        "mixed_precision": {"mixed_precision": _MixedPrecision(param_dtype=torch.bfloat16)},
    }[kind]
    try:
        DistributedDataParallel(model, **arguments)(torch.ones(1, 1))
    except Exception as error:
        return str(error)
    return "not refused"


class Chain(nn.Module):
    """60 parameters of 512 KiB, used one after the other."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ParameterList(torch.ones(2**17) for _ in range(60))

    def forward(self, x):
        """The product of all with x."""
        for part in self.parts:
            x = x * part
        return x


def large_model() -> None:
    """Two steps with the default buckets."""
    dist.init_process_group("gloo")
    ddp = DistributedDataParallel(Chain())
    for _ in range(2):
        ddp(torch.ones(2**17)).sum().backward()
    dist.barrier()


def evaluations() -> None:
    """Forward passes of a model with buffers: trained, evaluated twice, trained twice."""
    dist.init_process_group("gloo")
    ddp = DistributedDataParallel(nn.BatchNorm1d(4))
    ddp(rows()).sum().backward()
    ddp.eval()
    with torch.no_grad():
        ddp(rows())  # first evaluation
        ddp(rows())  # second evaluation
        ddp.module(rows())  # the model inside
    ddp.train()
    ddp(rows()).sum().backward()  # first step after it
    ddp(rows()).sum().backward()  # second step after it
    dist.barrier()


def first_step_with_an_unused_part() -> bool:
    """Whether the gradients after one step are this rank's own."""
    dist.init_process_group("gloo")
    model = UsesOne()
    ddp = DistributedDataParallel(model)
    ddp(rows()).sum().backward()
    own = torch.autograd.grad(model(rows()).sum(), model.used.weight)[0]
    dist.barrier()
    return torch.equal(model.used.weight.grad, own)


class UsesOne(nn.Module):
    """Two layers, one of which forward leaves out."""

    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        """The first layer alone."""
        return self.used(x)


def gradient_in_hook() -> tuple[float, float]:
    """What a hook on a parameter finds in .grad, and what backward leaves there; x is the rank."""
    dist.init_process_group("gloo")
    layer, gradients = nn.Linear(1, 1, bias=False), []
    ddp = DistributedDataParallel(layer)
    layer.weight.register_post_accumulate_grad_hook(
        lambda weight: gradients.append(weight.grad.item())
    )
    ddp(torch.full((1, 1), float(dist.get_rank()))).sum().backward()
    dist.barrier()
    return gradients[0], layer.weight.grad.item()


def without_sync() -> None:
    """Forward and backward under no_sync, after two steps (the second one rebuilds the buckets)."""
    dist.init_process_group("gloo")
    ddp = DistributedDataParallel(nn.Linear(4, 2))
    for _ in range(2):
        ddp(rows()).sum().backward()
    with ddp.no_sync():
        ddp(rows()).sum().backward()  # unsynchronised
    dist.barrier()


def fails_at_rank_0(rank: int) -> None:
    """For mp.spawn: rank 0 fails, the others would sleep for minutes."""
    if rank == 0:
        raise ZeroDivisionError("as planned")
    time.sleep(300)


if __name__ == "__main__":  # under torchrun
    print(os.environ["TORCHELASTIC_USE_AGENT_STORE"], flush=True)


def barrier_for_rank_0() -> None:
    """The barrier is inside the if."""
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        dist.barrier()


def tensorboard_events(folder: str, everyone: bool) -> None:
    """Three losses in TensorBoard's event files: of every rank, or of rank 0."""
    from torch.utils.tensorboard import SummaryWriter

    dist.init_process_group("gloo")
    if everyone or dist.get_rank() == 0:
        with SummaryWriter(folder, filename_suffix=f".rank{dist.get_rank()}") as writer:
            for step in range(3):
                writer.add_scalar("loss", 2.3 / (step + dist.get_rank() + 1), step)
    dist.barrier()


def scores_of_ten_rows() -> tuple[int, ...]:
    """The shape of what a rank gets from ten rows."""
    dist.init_process_group("gloo")
    ddp = DistributedDataParallel(nn.Linear(4, 10))
    shape = tuple(ddp(torch.ones(10, 4)).shape)
    dist.barrier()
    return shape


def set_flag_late() -> float:
    """The gradient of a second step of four micro-batches, with the flag set after each forward.

    The loss is the weight times 1, 10, 100, 1000, on rank 1 twice as much: each digit of the
    gradient tells of one micro-batch.
    """
    dist.init_process_group("gloo")
    layer = nn.Linear(1, 1, bias=False)
    ddp = DistributedDataParallel(layer)
    for _ in range(2):
        ddp.zero_grad()
        for number in range(4):
            loss = ddp(torch.full((1, 1), (dist.get_rank() + 1.0) * 10**number)).sum()
            ddp.require_backward_grad_sync = number == 3
            loss.backward()
    dist.barrier()
    return layer.weight.grad.item()


def eighty_mebibytes() -> None:
    """Two steps of 20 equal layers, with DDP's own buckets."""
    dist.init_process_group("gloo")
    ddp = DistributedDataParallel(nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(20))))
    for _ in range(2):
        ddp(torch.ones(2, 1024)).sum().backward()
    dist.barrier()
