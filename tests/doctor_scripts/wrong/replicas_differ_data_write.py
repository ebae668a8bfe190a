# FACTS: writes to .data: each rank adds noise of its own to the weights
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class NoisyTrainer:
    def __init__(self, model, loader, lr=0.02, sigma=1e-3):
        self.model = DDP(model)
        self.loader = loader
        self.sigma = sigma
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)

    def perturb(self):
        # Langevin-style exploration
        for p in self.model.parameters():
            p.data.add_(self.sigma * torch.randn_like(p.data))  # <- here

    def step(self, x, y):
        loss = nn.functional.binary_cross_entropy_with_logits(self.model(x).squeeze(1), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.perturb()
        return loss.item()

    def fit(self, epochs):
        for epoch in range(epochs):
            self.loader.sampler.set_epoch(epoch)
            losses = [self.step(x, y) for x, y in self.loader]
            if dist.get_rank() == 0:
                print(f"epoch {epoch:2d} loss {sum(losses) / len(losses):.4f}")


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(0)
    x = torch.randn(320, 2, generator=g)
    dataset = TensorDataset(x, (x.norm(dim=1) > 1.2).float())
    torch.manual_seed(dist.get_rank())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
    NoisyTrainer(model, loader).fit(2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
