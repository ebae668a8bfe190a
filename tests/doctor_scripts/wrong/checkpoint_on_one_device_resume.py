# examples #969, #1078: torch.load without map_location puts every rank's copy where it was saved
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CKPT = os.path.join(tempfile.gettempdir(), "planted_resume.pt")


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 1))

    def forward(self, x):
        return self.layers(x)


def resume(model, optimizer):
    checkpoint = torch.load(CKPT, weights_only=True)  # <- here
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return checkpoint["epoch"] + 1


def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    local_rank = int(os.environ["LOCAL_RANK"])
    device = f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    x = torch.randn(256, 5)
    dataset = TensorDataset(x, x.mean(1, keepdim=True))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = Regressor().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    if dist.get_rank() == 0:
        first = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": -1}
        torch.save(first, CKPT)
    dist.barrier()
    start = resume(model, optimizer)
    model = DDP(model, device_ids=[local_rank] if device != "cpu" else None)
    for epoch in range(start, start + 2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = (model(x.to(device)) - y.to(device)).square().mean()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
