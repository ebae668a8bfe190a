# hand-written averaging: the whole accumulated gradient is sent after every micro-batch
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def all_reduce_mean(tensors):
    for t in tensors:
        dist.all_reduce(t, op=dist.ReduceOp.AVG)  # <- here


def micro_batches(batch, k):
    return zip(*(part.chunk(k) for part in batch))


def train_step(model, optimizer, batch, k=4):
    optimizer.zero_grad()
    params = list(model.parameters())
    for x, y in micro_batches(batch, k):
        loss = nn.functional.cross_entropy(model(x), y) / k
        loss.backward()
        all_reduce_mean([p.grad for p in params])  # <- here
    optimizer.step()
    return loss.item() * k


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(320, 9)
    dataset = TensorDataset(x, x[:, :3].argmin(1))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler, drop_last=True)
    model = nn.Sequential(nn.Linear(9, 24), nn.ReLU(), nn.Linear(24, 3))
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            loss = train_step(model, optimizer, batch)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
