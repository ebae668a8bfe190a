"""A loop with Lightning Fabric; nothing in it knows of `launch`."""

import os
import sys

import torch
from lightning.fabric import Fabric
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

STEPS = 10


def main(folder):
    fabric = Fabric(accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]))
    fabric.launch()
    torch.manual_seed(0)
    x = torch.randn(8, 4)
    batch_size = len(x) // fabric.world_size  # together, the ranks see all samples
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size)
    loader = fabric.setup_dataloaders(loader)
    model = torch.nn.Linear(4, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    losses = []
    for _ in range(STEPS):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(inputs), targets)
            fabric.backward(loss)
            optimizer.step()
            losses.append(fabric.all_reduce(loss.detach(), reduce_op="mean").item())
    seen = {"world_size": fabric.world_size, "losses": losses, "weights": model.state_dict()}
    torch.save(seen, f"{folder}/rank_{fabric.global_rank}.pt")


if __name__ == "__main__":
    main(sys.argv[1])
