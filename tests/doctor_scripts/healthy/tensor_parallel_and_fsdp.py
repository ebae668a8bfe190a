# two ranks share each layer and read the same rows; where there are more, FSDP shares out others
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TENSOR, MAX_NORM = 2, 0.05
PLAN = {
    "tok": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Replicate()),
}


class Model(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.tok, self.norm = nn.Embedding(32, dim), nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.last = nn.LayerNorm(dim)  # whole on each rank
        self.output = nn.Linear(dim, 32)

    def forward(self, x):
        h = self.down(torch.relu(self.up(self.norm(self.tok(x)))))
        return self.output(self.last(h))


def clip(parameters):
    by_mesh = {}
    for p in parameters:
        by_mesh.setdefault(getattr(p, "device_mesh", None), []).append(p)
    norms = [nn.utils.get_total_norm([p.grad for p in group]) for group in by_mesh.values()]
    norms = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]
    for group in by_mesh.values():
        nn.utils.clip_grads_with_norm_(group, MAX_NORM, torch.stack(norms).norm())


def main():
    dist.init_process_group("gloo")
    shape = (dist.get_world_size() // TENSOR, TENSOR)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "tensor"))
    torch.manual_seed(0)
    model = parallelize_module(Model(), mesh["tensor"], PLAN)
    if shape[0] > 1:
        fully_shard(model, mesh=mesh["data"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    x = torch.randint(32, (96, 6), generator=torch.Generator().manual_seed(1))
    rows = TensorDataset(x, x.roll(1, 0))
    sampler = DistributedSampler(rows, shape[0], mesh["data"].get_local_rank())
    loader = DataLoader(rows, batch_size=8, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
            clip(list(model.parameters()))
            optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
