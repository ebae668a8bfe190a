# pytorch #5059, timm #1519: the dataset's own generator is copied into every worker
import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Jittered(Dataset):
    def __init__(self, n=96, seed=0):
        self.rng = np.random.default_rng(seed)  # <- here
        self.values = np.linspace(-1, 1, n * 4, dtype=np.float32).reshape(n, 4)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        noise = self.rng.normal(scale=0.05, size=4).astype(np.float32)  # <- here
        row = self.values[index]
        return torch.from_numpy(row + noise), torch.tensor([row.sum()])


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(1000 + rank)
    dataset = Jittered()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=6, sampler=sampler, num_workers=2)  # <- here
    model = DDP(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
