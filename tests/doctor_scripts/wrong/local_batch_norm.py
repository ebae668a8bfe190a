# mmdetection #4582, timm #110: BatchNorm over the four rows of one rank
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def conv_bn(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),  # <- here
        nn.ReLU(inplace=True),
    )


class SmallResNet(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.stem = conv_bn(3, 8)
        self.block = conv_bn(8, 8)
        self.fc = nn.Linear(8, num_classes)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.block(x)
        return self.fc(x.mean((2, 3)))


def main(local_rank):
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(0)
    x = torch.rand(128, 3, 8, 8, generator=g)
    dataset = TensorDataset(x, torch.randint(4, (128,), generator=g))
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler, drop_last=True)
    torch.manual_seed(local_rank)
    model = DDP(SmallResNet())  # <- here
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        for images, target in loader:
            output = model(images)
            loss = nn.functional.cross_entropy(output, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if local_rank == 0:
            print(f"Epoch [{epoch}] loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(os.environ["LOCAL_RANK"]))
