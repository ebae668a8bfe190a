# find_unused_parameters=True "to be safe", though every parameter is used
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def get_args():
    parser = argparse.ArgumentParser("U-Net like")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--batch", type=int, default=8)
    return parser.parse_args()


class MiniUNet(nn.Module):
    def __init__(self, c=4):
        super().__init__()
        self.down = nn.Conv2d(1, c, 3, stride=2, padding=1)
        self.mid = nn.Conv2d(c, c, 3, padding=1)
        self.up = nn.ConvTranspose2d(c, c, 2, stride=2)
        self.out = nn.Conv2d(c + 1, 1, 1)

    def forward(self, x):
        h = torch.relu(self.mid(torch.relu(self.down(x))))
        return self.out(torch.cat([self.up(h), x], dim=1))


def main(args):
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(0)
    images = torch.rand(96, 1, 12, 12, generator=g)
    dataset = TensorDataset(images, (images > 0.5).float())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=args.batch, sampler=sampler)
    model = DistributedDataParallel(MiniUNet(), find_unused_parameters=True)  # <- here
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for image, mask in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(image), mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} bce {loss.item():.4f}")
    dist.destroy_process_group()


main(get_args())
