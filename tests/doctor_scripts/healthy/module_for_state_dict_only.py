# pytorch #3805: .module for saving and loading; every forward goes through DDP
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

PATH = os.path.join(tempfile.gettempdir(), "planted_healthy_module.pt")


class Trainer:
    def __init__(self, model, dataset):
        self.rank = dist.get_rank()
        self.model = DDP(model)
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, batch_size=16, sampler=self.sampler)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def save(self):
        if self.rank == 0:
            torch.save(self.model.module.state_dict(), PATH)
        dist.barrier()

    def load(self):
        state = torch.load(PATH, map_location="cpu", weights_only=True)
        self.model.module.load_state_dict(state)
        dist.barrier()

    def epoch(self, number):
        self.sampler.set_epoch(number)
        for x, y in self.loader:
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(0)
    x = torch.randn(240, 1, 6, 6, generator=g)
    dataset = TensorDataset(x, (x.sum((1, 2, 3)) > 0).long())
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
    trainer = Trainer(net, dataset)
    for number in range(2):
        loss = trainer.epoch(number)
        trainer.save()
        trainer.load()
        if trainer.rank == 0:
            print(f"epoch {number}: {loss:.4f}")
    dist.destroy_process_group()
