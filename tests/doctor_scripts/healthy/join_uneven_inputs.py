# pytorch #38174 mended: rank r has r batches more than rank 0, and join() shadows the early ones
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.MSELoss()

g = torch.Generator().manual_seed(1000 + rank)
inputs = [torch.randn(16, 5, generator=g) for _ in range(5 + rank)]

for epoch in range(2):
    with model.join():
        for x in inputs:
            optimizer.zero_grad()
            loss = criterion(model(x), x.sum(1, keepdim=True))
            loss.backward()
            optimizer.step()
    print(f"rank {rank}: epoch {epoch} done after {len(inputs)} batches, loss {loss.item():.4f}")

dist.barrier()
dist.destroy_process_group()
