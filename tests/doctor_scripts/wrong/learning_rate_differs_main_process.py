# accelerate #662 the other way round: only the main process steps its schedule
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def is_main_process():
    return int(os.environ.get("RANK", 0)) == 0


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.rand(240, 4)
    dataset = TensorDataset(x, (x[:, :1] > x[:, 1:2]).float())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=12, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)))
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()  # <- here
        if is_main_process():
            print(f"epoch {epoch} lr {scheduler.get_last_lr()[0]:.4f} loss {loss.item():.4f}")
            scheduler.step()  # <- here
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
