# torchtitan's way: a mesh of pipeline x data, stages cut out of copies of a model, one norm of all
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STAGES, LAYERS, MICRO_BATCHES, MAX_NORM = 2, 4, 4, 0.05


class Model(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.tok = nn.Embedding(32, dim)
        self.layers = nn.ModuleDict({str(n): nn.Linear(dim, dim) for n in range(LAYERS)})
        self.output = nn.Linear(dim, 32)

    def forward(self, h):
        h = self.tok(h) if self.tok is not None else h
        for layer in self.layers.values():
            h = h + torch.tanh(layer(h))
        return self.output(h) if self.output is not None else h


def part_of(model, stage):
    part, each = copy.deepcopy(model), LAYERS // STAGES
    for n in range(LAYERS):
        if n // each != stage:
            del part.layers[str(n)]
    if stage > 0:
        part.tok = None
    if stage < STAGES - 1:
        part.output = None
    return part


def clip(parameters, group):
    norm = nn.utils.get_total_norm([p.grad for p in parameters])
    squares = (norm.full_tensor() if hasattr(norm, "full_tensor") else norm) ** 2
    dist.all_reduce(squares, group=group)
    nn.utils.clip_grads_with_norm_(parameters, MAX_NORM, squares.sqrt())


def main():
    dist.init_process_group("gloo")
    shape = (STAGES, dist.get_world_size() // STAGES)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("pipeline", "data"))
    group, number = mesh["pipeline"].get_group(), mesh["pipeline"].get_local_rank()
    torch.manual_seed(0)
    part = part_of(Model(), number)
    if shape[1] > 1:
        fully_shard(part, mesh=mesh["data"], reshard_after_forward=False)
    stage = PipelineStage(part, number, STAGES, torch.device("cpu"), group=group)
    schedule = Schedule1F1B(
        stage, MICRO_BATCHES, lambda out, y: nn.functional.cross_entropy(out.flatten(0, 1), y)
    )
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-2)
    x = torch.randint(32, (96, 6), generator=torch.Generator().manual_seed(1))
    rows = TensorDataset(x, x.roll(1, 0))
    sampler = DistributedSampler(rows, shape[1], mesh["data"].get_local_rank())
    loader = DataLoader(rows, batch_size=8, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            losses = []
            if number == 0:
                schedule.step(x)
            else:
                schedule.step(target=y.flatten(), losses=losses)
            clip(list(part.parameters()), group)
            optimizer.step()
        if losses:
            print(f"epoch {epoch} loss {torch.stack(losses).mean():.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
