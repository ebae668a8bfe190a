# AReaL #312, pytorch #72548: each rank clips its own gradient, then the clipped ones are averaged
import torch
import torch.distributed as dist
import torch.nn as nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

MAX_NORM = 0.5


def flat_all_reduce(grads):
    flat = _flatten_dense_tensors(grads)
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for grad, synced in zip(grads, _unflatten_dense_tensors(flat, grads)):
        grad.copy_(synced)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(5)
    x = torch.randn(256, 7, generator=g) * torch.linspace(0.1, 5, 256).unsqueeze(1)
    dataset = TensorDataset(x, x.norm(dim=1, keepdim=True))
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = nn.Sequential(nn.Linear(7, 32), nn.LeakyReLU(), nn.Linear(32, 1))
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    params = list(model.parameters())
    optimizer = torch.optim.SGD(params, lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(params, MAX_NORM)  # <- here
            flat_all_reduce([p.grad for p in params])
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
