# rank 0 alone logs, evaluates the bare module and saves, while the others wait at the barrier
import csv
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

OUT = tempfile.gettempdir()


def is_main():
    return dist.get_rank() == 0


@torch.no_grad()
def evaluate(net, x, y):
    net.eval()
    loss = nn.functional.mse_loss(net(x), y).item()
    net.train()
    return loss


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(320, 4)
    y = x.prod(1, keepdim=True)
    train_set = TensorDataset(x[:256], y[:256])
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    log = open(os.path.join(OUT, "planted_log.csv"), "w", newline="") if is_main() else None
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(xb), yb).backward()
            optimizer.step()
        if is_main():
            val = evaluate(model.module, x[256:], y[256:])
            csv.writer(log).writerow([epoch, val])
            torch.save(model.module.state_dict(), os.path.join(OUT, "planted_best.pt"))
            print(f"epoch {epoch}: val {val:.4f}")
        dist.barrier()
    if log:
        log.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
