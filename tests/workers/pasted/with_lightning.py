"""A LightningModule and its Trainer; nothing in it knows of `launch`."""

import os
import sys

import lightning
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

STEPS = 10


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
        self.losses = []

    def training_step(self, batch, index):
        inputs, targets = batch
        loss = F.mse_loss(self.linear(inputs), targets)
        self.losses.append(self.trainer.strategy.reduce(loss.detach()).item())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(folder):
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        max_epochs=STEPS,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    torch.manual_seed(0)
    x = torch.randn(8, 4)
    batch_size = len(x) // trainer.world_size  # together, the ranks see all samples
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size)
    model = Regression()
    trainer.fit(model, loader)
    seen = {
        "world_size": trainer.world_size,
        "losses": model.losses,
        "weights": model.state_dict(),
    }
    torch.save(seen, f"{folder}/rank_{trainer.global_rank}.pt")


if __name__ == "__main__":
    main(sys.argv[1])
