# local SGD: ranks go their own way for two steps, then the weights are averaged
import os

import torch
import torch.distributed as dist
import torch.nn as nn

LOCAL_STEPS = 2


@torch.no_grad()
def average_weights(model):
    for p in model.parameters():
        dist.all_reduce(p, op=dist.ReduceOp.AVG)


def main(rank):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    average_weights(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(rank)
    for step in range(12):
        x = torch.randn(16, 4, generator=g)
        loss = nn.functional.mse_loss(model(x), x.abs().sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % LOCAL_STEPS == 0:
            average_weights(model)
        if rank == 0 and step % 4 == 3:
            print(f"step {step}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(os.environ["RANK"]))
