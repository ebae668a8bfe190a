"""A loop with Hugging Face Accelerate; nothing in it knows of `launch`."""

import sys

import torch
from accelerate import Accelerator
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

STEPS = 10


def main(folder):
    accelerator = Accelerator(cpu=True)  # without it, ranks on a CPU train alone
    torch.manual_seed(0)
    x = torch.randn(8, 4)
    batch_size = len(x) // accelerator.num_processes  # together, the ranks see all samples
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for _ in range(STEPS):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            losses.append(accelerator.reduce(loss.detach(), "mean").item())
    seen = {
        "world_size": accelerator.num_processes,
        "losses": losses,
        "weights": accelerator.unwrap_model(model).state_dict(),
    }
    torch.save(seen, f"{folder}/rank_{accelerator.process_index}.pt")
    accelerator.end_training()


if __name__ == "__main__":
    main(sys.argv[1])
