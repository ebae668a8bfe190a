# build-nanogpt #30 mended: forward and backward inside no_sync, the last group of an epoch shorter
import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ACCUM = 3


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)
    x = torch.randn(320, 8)
    dataset = TensorDataset(x, x.pow(2).mean(1, keepdim=True))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, drop_last=True)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for i, (x, y) in enumerate(loader):
            group = min(ACCUM, len(loader) - i // ACCUM * ACCUM)
            last = i % ACCUM == group - 1
            with contextlib.nullcontext() if last else model.no_sync():
                loss = nn.functional.mse_loss(model(x), y) / group
                loss.backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item() * group:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
