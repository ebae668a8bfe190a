# all weights are broadcast after every step of a DDP model
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class GAE(nn.Module):
    def __init__(self, n=12, dim=16):
        super().__init__()
        self.w1 = nn.Linear(n, dim, bias=False)
        self.w2 = nn.Linear(dim, 8, bias=False)

    def forward(self, adj):
        z = self.w2(torch.relu(adj @ self.w1(adj)))
        return z @ z.transpose(1, 2)


def sync_weights(module):
    for p in module.parameters():
        dist.broadcast(p.data, src=0)  # <- here


def random_graphs(batch, n, generator):
    adj = (torch.rand(batch, n, n, generator=generator) < 0.3).float()
    return torch.maximum(adj, adj.transpose(1, 2))


rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(GAE())
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
gen = torch.Generator().manual_seed(rank)

for step in range(10):
    adj = random_graphs(8, 12, gen)
    loss = nn.functional.binary_cross_entropy_with_logits(model(adj), adj)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    sync_weights(model.module)  # <- here
    if rank == 0 and step % 5 == 0:
        print(f"step {step}: {loss.item():.4f}")

dist.destroy_process_group()
