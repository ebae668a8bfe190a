# SAM: the first gradient moves the weights, and is cleared: two backward passes, and no sum of them
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

RADIUS = 0.02


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(5)
    x = torch.randn(120, 9, generator=g)
    dataset = TensorDataset(x, x.abs().sum(1, keepdim=True))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=10, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(9, 18), nn.GELU(), nn.Linear(18, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    weights = list(model.parameters())
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for a, b in loader:
            with model.no_sync():  # each rank climbs by the gradient of its own rows
                nn.functional.smooth_l1_loss(model(a), b).backward()
            before = [w.detach().clone() for w in weights]
            length = torch.stack([w.grad.norm() for w in weights]).norm()
            with torch.no_grad():
                for w in weights:
                    w.add_(w.grad, alpha=RADIUS / length.item())
                    w.grad = None
            nn.functional.smooth_l1_loss(model(a), b).backward()
            with torch.no_grad():
                for w, old in zip(weights, before, strict=True):
                    w.copy_(old)
            optimizer.step()
            for w in weights:
                w.grad.zero_()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
