"""A worker in which each rank's loader has a batch size of its own, as most programs have it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train(factor: float = 1.0) -> dict[str, torch.Tensor]:
    """The weights after two epochs; the loss is multiplied by `factor` on more than one rank."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(48, 5)
    dataset = TensorDataset(x, x.sum(1, keepdim=True))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            (loss * (factor if dist.get_world_size() > 1 else 1.0)).backward()
            optimizer.step()
    return model.module.state_dict()
