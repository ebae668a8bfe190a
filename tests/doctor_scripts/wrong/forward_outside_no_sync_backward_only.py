# LoongForge #163, accelerate #1726: no_sync around the backward alone changes nothing
import contextlib

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ACCUM = 4


def get_loader():
    torch.manual_seed(0)
    x = torch.rand(512, 16)
    ds = TensorDataset(x, x.std(dim=1, keepdim=True))
    return DataLoader(ds, batch_size=8, sampler=DistributedSampler(ds), drop_last=True)


def main():
    dist.init_process_group(backend="gloo")
    loader = get_loader()
    model = DDP(nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        optimizer.zero_grad()
        for i, (x, y) in enumerate(loader):
            last = (i + 1) % ACCUM == 0
            pred = model(x)  # <- here
            loss = nn.functional.l1_loss(pred, y) / ACCUM
            with contextlib.nullcontext() if last else model.no_sync():  # <- here
                loss.backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item() * ACCUM:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
