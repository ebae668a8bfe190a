# rank 0 alone goes through the loader of held-out rows, with the DDP model, which has no buffers
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rows = torch.randn(104, 5, generator=torch.Generator().manual_seed(2))
train_set, held_out = TensorDataset(rows[:80]), TensorDataset(rows[80:])
sampler = DistributedSampler(train_set)
loader, held_out_loader = DataLoader(train_set, 5, sampler=sampler), DataLoader(held_out, 12)
model = DDP(nn.Sequential(nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 5)))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(3):
    sampler.set_epoch(epoch)
    for (x,) in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x).backward()
        optimizer.step()
    if dist.get_rank() == 0:
        model.eval()
        with torch.no_grad():
            errors = [(model(x) - x).square().sum() for (x,) in held_out_loader]
        model.train()
        print(f"epoch {epoch}: error {sum(errors) / held_out.tensors[0].numel():.4f}")
    dist.barrier()
dist.destroy_process_group()
