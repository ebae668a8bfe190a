# pytorch #37359, #5778: the loss is divided by the world size, then DDP averages
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def prepare(rank, world_size, batch_size=16):
    g = torch.Generator().manual_seed(9)
    xs = torch.linspace(-2, 2, 384).unsqueeze(1)
    ys = torch.sin(xs) + 0.05 * torch.randn(384, 1, generator=g)
    dataset = TensorDataset(xs, ys)
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    loader = prepare(rank, world_size)
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.mse_loss(model(x), y)
            # average over all GPUs
            loss = loss / world_size  # <- here
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"Epoch {epoch} | loss {loss.item() * world_size:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
