# RoMa #32: every rank shuffles and reads the whole data set
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group(backend="gloo")
rank = int(os.environ["RANK"])
world_size = int(os.environ["WORLD_SIZE"])
torch.manual_seed(0)

x = torch.randn(256, 10)
y = x @ torch.randn(10, 1) + 0.1 * torch.randn(256, 1)
train_set = TensorDataset(x, y)
batch_size = 32 // world_size

net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
net = DDP(net)
opt = torch.optim.SGD(net.parameters(), lr=0.05)
criterion = nn.MSELoss()

train_loader = DataLoader(train_set, batch_size=batch_size, shuffle=True)  # <- here

for epoch in range(2):
    running = 0.0
    for inputs, targets in train_loader:  # <- here
        opt.zero_grad()
        loss = criterion(net(inputs), targets)
        loss.backward()
        opt.step()
        running += loss.item()
    if rank == 0:
        print(f"epoch {epoch}: loss {running / len(train_loader):.4f}")

dist.destroy_process_group()
