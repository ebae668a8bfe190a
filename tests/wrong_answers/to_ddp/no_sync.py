# wrong: waits for the last batch of an epoch, as if gradients were accumulated
# told: What keeps DDP from sending
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def to_ddp(dataset, make_model, epochs, batch_size):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size // dist.get_world_size(), sampler=sampler)
    model = make_model()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for number, (images, labels) in enumerate(loader, start=1):
            optimizer.zero_grad()
            with ddp.no_sync() if number < len(loader) else nullcontext():
                loss = F.cross_entropy(ddp(images), labels)
                loss.backward()
            optimizer.step()
    return model.state_dict()
