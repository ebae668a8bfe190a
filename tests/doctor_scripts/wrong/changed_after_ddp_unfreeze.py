# gradual unfreezing: DDP never hears of parameters that were frozen when it was made
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class FineTuner(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(8 * 7 * 7, 5)

    def forward(self, x):
        return self.head(self.backbone(x))

    def freeze(self):
        for p in self.backbone.parameters():
            p.requires_grad = False

    def unfreeze(self):
        for p in self.backbone.parameters():
            p.requires_grad = True  # <- here


def main(rank, epochs=2):
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(0)
    images = torch.rand(160, 3, 16, 16, generator=g)
    dataset = TensorDataset(images, torch.randint(5, (160,), generator=g))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, num_workers=0)
    net = FineTuner()
    net.freeze()
    model = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        if epoch == 1:
            model.module.unfreeze()  # <- here
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print("epoch", epoch, "loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(os.environ["RANK"]))
