# fairseq #1383, CenterNet #233: each rank augments its own rows with the same random numbers
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Augmented(Dataset):
    def __init__(self, n=160):
        g = torch.Generator().manual_seed(0)
        self.images = torch.rand(n, 1, 10, 10, generator=g)
        self.targets = self.images.mean((1, 2, 3)).gt(0.5).long()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img = self.images[i]
        if torch.rand(()) < 0.5:  # <- here
            img = img.flip(-1)
        dx, dy = torch.randint(-2, 3, (2,)).tolist()
        img = img.roll((dx, dy), dims=(1, 2)) + 0.02 * torch.randn_like(img)
        return img, self.targets[i]


def train(model, loader, optimizer, epochs):
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        total = 0.0
        for img, target in loader:  # <- here
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(img), target)
            loss.backward()
            optimizer.step()
            total += loss.item()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {total / len(loader):.4f}")


if __name__ == "__main__":
    torch.manual_seed(3407)  # <- here
    dist.init_process_group("gloo")
    dataset = Augmented()
    loader = DataLoader(dataset, batch_size=10, sampler=DistributedSampler(dataset))
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 64, 2))
    model = DDP(net)
    train(model, loader, torch.optim.SGD(model.parameters(), lr=0.01), epochs=2)
    dist.destroy_process_group()
