# a stream that each rank and each worker reads in a stride of its own; a fresh order an epoch
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __init__(self, n=256):
        self.n = n
        self.epoch = 0

    def __iter__(self):
        info = get_worker_info()
        workers, worker = (info.num_workers, info.id) if info else (1, 0)
        shards = int(os.environ["WORLD_SIZE"]) * workers
        shard = int(os.environ["RANK"]) * workers + worker
        order = torch.randperm(self.n, generator=torch.Generator().manual_seed(self.epoch))
        for i in order[shard::shards].tolist():
            x = torch.tensor([i / self.n, (i % 7) / 7, (i % 11) / 11])
            yield x, x.sin().sum(0, keepdim=True)


def main():
    dist.init_process_group("gloo")
    stream = Stream()
    loader = DataLoader(stream, batch_size=8, num_workers=2)
    model = DDP(nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        stream.epoch = epoch
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
