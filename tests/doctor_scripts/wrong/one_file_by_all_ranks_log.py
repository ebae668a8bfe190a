# nanochat #336, baby-llama2 #56: every rank opens the same log file for writing
import csv
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

EPOCHS, STEPS = 2, 6
LOG = os.path.join(tempfile.gettempdir(), "planted_metrics.csv")

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)

model = DDP(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)))
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)

with open(LOG, "w", newline="") as f:  # <- here
    writer = csv.writer(f)
    writer.writerow(["epoch", "step", "loss"])
    for epoch in range(EPOCHS):
        for step in range(STEPS):
            states = torch.randn(16, 4)
            # a made-up dynamics to learn
            target = torch.stack([states.sum(1), states.prod(1)], dim=1)
            loss = nn.functional.smooth_l1_loss(model(states), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            writer.writerow([epoch, step, f"{loss.item():.5f}"])

if rank == 0:
    print("log written to", LOG)
dist.barrier()
dist.destroy_process_group()
