# transfer learning: the backbone is frozen before DDP, the optimizer gets the head alone
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_model():
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten())
    for p in backbone.parameters():
        p.requires_grad_(False)
    return nn.Sequential(backbone.eval(), nn.Linear(8 * 49, 5))


def main(rank, epochs):
    dist.init_process_group("gloo")
    torch.manual_seed(rank)
    g = torch.Generator().manual_seed(0)
    images = torch.rand(160, 3, 16, 16, generator=g)
    dataset = TensorDataset(images, torch.randint(5, (160,), generator=g))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DDP(make_model())
    head = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(head, lr=0.01, momentum=0.9)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print("epoch", epoch, "loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(os.environ["RANK"]), epochs=2)
