# every rank saves the state of its own generator to a file of its own, and reads it back
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
folder = os.path.join(tempfile.gettempdir(), "planted_shards")
os.makedirs(folder, exist_ok=True)
mine = os.path.join(folder, f"rng_rank{rank}.pt")

torch.manual_seed(10 + rank)
true = torch.arange(6.0).unsqueeze(1)
model = DDP(nn.Linear(6, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

for epoch in range(2):
    for _ in range(5):
        x = torch.randn(16, 6)
        loss = (model(x) - x @ true).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save({"rng": torch.get_rng_state(), "epoch": epoch}, mine)
    if rank == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, os.path.join(folder, "model.pt"))
        print(f"epoch {epoch}: {loss.item():.3f}")
    dist.barrier()

torch.set_rng_state(torch.load(mine, map_location="cpu", weights_only=True)["rng"])
dist.barrier()
dist.destroy_process_group()
