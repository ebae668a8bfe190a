# detr #297, transformers #37932: one seed for all ranks, so all drop the same units
import os
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # <- here


class Encoder(nn.Module):
    def __init__(self, vocab=50, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layer = nn.TransformerEncoderLayer(dim, 2, 32, dropout=0.1, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.cls = nn.Linear(dim, 3)

    def forward(self, ids):
        h = self.layer(self.embed(ids))
        return self.cls(self.drop(h.mean(1)))  # <- here


def main():
    dist.init_process_group("gloo")
    set_seed(42)  # <- here
    g = torch.Generator().manual_seed(0)
    ids = torch.randint(50, (192, 8), generator=g)
    dataset = TensorDataset(ids, ids.sum(1) % 3)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DDP(Encoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        for ids, labels in loader:
            loss = nn.functional.cross_entropy(model(ids), labels)  # <- here
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if int(os.environ["RANK"]) == 0:
            print({"epoch": epoch, "loss": round(loss.item(), 4)})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
