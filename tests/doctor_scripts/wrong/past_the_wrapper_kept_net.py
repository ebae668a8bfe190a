# openvla-oft #160: DDP is made, and the training loop goes on with the bare network
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def setup():
    dist.init_process_group("gloo")


def cleanup():
    dist.destroy_process_group()


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def demo_basic(rank, world_size):
    print(f"Running basic DDP example on rank {rank}.")
    setup()
    torch.manual_seed(rank)
    model = ToyModel()
    ddp_model = DDP(model)
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.01)
    for _ in range(8):
        optimizer.zero_grad()
        outputs = model(torch.randn(20, 10))  # <- here
        labels = torch.randn(20, 5)
        F.mse_loss(outputs, labels).backward()
        optimizer.step()
    print(f"Finished running basic DDP example on rank {rank}.")
    cleanup()


if __name__ == "__main__":
    demo_basic(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
