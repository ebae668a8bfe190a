# transformers #34191: four micro-batches are summed, the loss of none is divided
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ.get("LOCAL_RANK", 0))
device = torch.device(f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu")
accumulate = 4


def run():
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(21)
    feats = torch.randn(384, 8)
    dataset = TensorDataset(feats, feats.pow(2).sum(1, keepdim=True))
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, drop_last=True)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to(device))
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        batches = iter(loader)
        for _ in range(len(loader) // accumulate):
            opt.zero_grad()
            with model.no_sync():
                for _ in range(accumulate - 1):
                    x, y = next(batches)
                    F.mse_loss(model(x.to(device)), y.to(device)).backward()  # <- here
            x, y = next(batches)
            loss = F.mse_loss(model(x.to(device)), y.to(device))
            loss.backward()  # <- here
            opt.step()
        if dist.get_rank() == 0:
            print("epoch", epoch, "loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
