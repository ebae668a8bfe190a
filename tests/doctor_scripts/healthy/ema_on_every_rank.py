# an EMA copy that every rank updates alike (.data writes and all); rank 0 saves it
import copy
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class EMA:
    def __init__(self, model, decay=0.9):
        self.shadow = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    def update(self, model):
        for ema_p, p in zip(self.shadow.parameters(), model.parameters()):
            ema_p.data.mul_(self.decay).add_(p.data, alpha=1 - self.decay)


def batch(generator):
    x = torch.rand(16, 3, generator=generator)
    return x, (x[:, :1] + x[:, 1:2] * x[:, 2:]).exp()


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    net = nn.Sequential(nn.Linear(3, 16), nn.GELU(), nn.Linear(16, 1))
    model = DDP(net)
    ema = EMA(model.module)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    g = torch.Generator().manual_seed(rank)
    for step in range(10):
        x, y = batch(g)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model.module)
    if rank == 0:
        x, y = batch(torch.Generator().manual_seed(99))
        print("EMA loss", nn.functional.mse_loss(ema.shadow(x), y).item())
        torch.save(ema.shadow.state_dict(), os.path.join(tempfile.gettempdir(), "planted_ema.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
