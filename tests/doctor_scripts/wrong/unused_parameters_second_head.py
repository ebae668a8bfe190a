# pytorch #43259: the auxiliary head is in the model, not in the loss; the second forward raises
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class TwoHeads(nn.Module):
    def __init__(self, use_aux=False):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 20), nn.ReLU())
        self.main_head = nn.Linear(20, 2)
        self.aux_head = nn.Linear(20, 4)
        self.use_aux = use_aux

    def forward(self, x):
        h = self.body(x)
        if self.use_aux:
            return self.main_head(h), self.aux_head(h)
        return self.main_head(h), None


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(int(os.environ["RANK"]))
    g = torch.Generator().manual_seed(1)
    x = torch.randn(256, 10, generator=g)
    dataset = TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(TwoHeads())  # <- here
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            logits, aux = model(x)  # <- here
            criterion(logits, y).backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print("epoch", epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
