"""Workers in which other parts of PyTorch make groups and send; each returns if it was right."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel


def tensor_parallel(rank, world_size):
    mesh = init_device_mesh("cpu", (world_size,))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    whole = model(torch.ones(1, 4)).detach().clone()
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return torch.allclose(model(torch.ones(1, 4)), whole, atol=1e-5)


def compiled(rank, world_size):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = DistributedDataParallel(nn.Linear(4, 2))
    torch.compile(model, backend="aot_eager")(torch.full((2, 4), rank + 1.0)).sum().backward()
    mean = sum(range(1, world_size + 1)) / world_size
    return torch.allclose(model.module.weight.grad, torch.full((2, 4), 2 * mean))


def zero_redundancy(rank, world_size):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 2))
    before = model.module.weight.detach().clone()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.5)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return torch.allclose(before - model.module.weight, torch.full((2, 4), 1.0))
