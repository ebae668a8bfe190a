# LongLive #71: the sampler is seeded by the rank, so the shares overlap
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def init_distributed():
    dist.init_process_group(backend="gloo", init_method="env://")
    return dist.get_rank(), dist.get_world_size()


def get_dataset(n=240):
    g = torch.Generator().manual_seed(17)
    frames = torch.rand(n, 4, 3, 6, 6, generator=g)
    return TensorDataset(frames, frames.diff(dim=1).abs().mean((1, 2, 3, 4)).unsqueeze(1))


class VideoNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(4, 4, 3)
        self.fc = nn.Linear(4 * 1 * 4 * 4, 1)

    def forward(self, clip):
        return self.fc(torch.relu(self.conv(clip)).flatten(1))


def main(seed=0, epochs=2):
    rank, world_size = init_distributed()
    seed = seed + rank
    torch.manual_seed(seed)
    dataset = get_dataset()
    sampler = DistributedSampler(
        dataset,
        num_replicas=world_size,
        rank=rank,
        shuffle=True,
        seed=seed,  # <- here
    )
    loader = DataLoader(dataset, batch_size=10, sampler=sampler, drop_last=True)
    model = DDP(VideoNet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for clip, motion in loader:
            loss = nn.functional.mse_loss(model(clip), motion)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.5f}, pid {os.getpid()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
