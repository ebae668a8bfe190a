# BatchNorm over all ranks where the devices have it, GroupNorm on a CPU, where it does not run
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def norm(channels):
    return nn.BatchNorm2d(channels) if torch.cuda.is_available() else nn.GroupNorm(2, channels)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 3), norm(8), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten()
        )
        self.fc = nn.Linear(72, 3)

    def forward(self, x):
        return self.fc(self.net(x))


def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    g = torch.Generator().manual_seed(0)
    x = torch.randn(192, 1, 8, 8, generator=g)
    dataset = TensorDataset(x, torch.randint(3, (192,), generator=g))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler, drop_last=True)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(ConvNet())
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
