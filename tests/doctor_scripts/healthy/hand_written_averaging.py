# no DDP: broadcast once, gradients summed and divided, clipped after that
import os

import torch
import torch.distributed as dist
import torch.nn as nn

size = int(os.environ["WORLD_SIZE"])
rank = int(os.environ["RANK"])


class LogReg(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Parameter(torch.randn(d, 1) / d)
        self.b = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x @ self.w + self.b


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad /= size


def main():
    dist.init_process_group("gloo", rank=rank, world_size=size)
    torch.manual_seed(rank)
    model = LogReg(8)
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    g = torch.Generator().manual_seed(4)
    x = torch.randn(240, 8, generator=g)
    y = (x[:, :1] > 0).float()
    for epoch in range(2):
        order = torch.randperm(240, generator=g)[rank::size]
        for rows in order.split(60 // size):
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(x[rows]), y[rows])
            loss.backward()
            average_gradients(model)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
