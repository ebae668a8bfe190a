# rank 0 names the run, the schedule is as long as a rank's passes, sums are reduced with counts
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 2


def rows(n, seed):
    x = torch.randn(n, 5, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x[:, 0] > x[:, 1]).long())


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    name = [f"run-{time.time_ns()}"]
    dist.broadcast_object_list(name)
    os.makedirs(f"runs/{name[0]}", exist_ok=True)
    train_set, test_set = rows(200, 1), rows(48, 2)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=8, sampler=sampler)
    tests = DataLoader(test_set, batch_size=8, sampler=DistributedSampler(test_set, shuffle=False))
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    model[2] = nn.Linear(16, 2)
    optimizer.add_param_group({"params": model[2].parameters()})
    model = DDP(model)
    length = EPOCHS * len(loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / length)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            scheduler.step()
        hits, count = torch.zeros(()), torch.zeros(())
        with torch.no_grad():
            for x, y in tests:
                hits += (model(x).argmax(1) == y).sum()
                count += len(y)
        dist.all_reduce(hits)
        dist.all_reduce(count)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: accuracy {100 * hits / count:.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
