# the sums and counts of all ranks are reduced before rank 0 logs, in training and in evaluation
import logging
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")


def rows(n, seed):
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x[:, 0] > x[:, 1]).float())


def main():
    dist.init_process_group("gloo")
    train_set, test_set = rows(144, 1), rows(48, 2)
    sampler = DistributedSampler(train_set, seed=3)
    loader = DataLoader(train_set, batch_size=9, sampler=sampler)
    tests = DataLoader(test_set, 8, sampler=DistributedSampler(test_set, shuffle=False))
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1), nn.Flatten(0)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if dist.get_rank() == 0:
        print("training begins")
    for epoch in range(3):
        sampler.set_epoch(epoch)
        sums = torch.zeros(4)  # loss and rows in training, hits and rows in evaluation
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums[:2] += torch.tensor([loss.item() * len(x), len(x)])
        model.eval()
        with torch.no_grad():
            for x, y in tests:
                sums[2:] += torch.tensor([((model(x) > 0) == y).sum(), len(x)])
        model.train()
        dist.all_reduce(sums)
        loss, accuracy = sums[0] / sums[1], sums[2] / sums[3]
        if dist.get_rank() == 0:
            logging.info("epoch %d: loss %.4f, accuracy %.3f", epoch, loss, accuracy)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
