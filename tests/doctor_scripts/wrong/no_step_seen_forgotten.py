# the loop was rewritten for accumulation, and optimizer.step() was lost
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, a, b):
        return nn.functional.pairwise_distance(self.net(a), self.net(b))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    a = torch.randn(256, 6)
    same = torch.arange(256) % 2
    b = torch.where(same.unsqueeze(1).bool(), a + 0.1 * torch.randn(256, 6), torch.randn(256, 6))
    dataset = TensorDataset(a, b, same.float())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(Siamese())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for a, b, same in loader:
            d = model(a, b)
            loss = (same * d**2 + (1 - same) * (1 - d).clamp(min=0) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()  # <- here
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
