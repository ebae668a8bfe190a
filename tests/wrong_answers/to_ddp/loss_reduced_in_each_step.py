# wrong: all-reduces the loss in each step, one more message to wait for
# told: A few numbers more than the gradients
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
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(ddp(images), labels)
            loss.backward()
            optimizer.step()
            dist.all_reduce(loss.detach())
    return model.state_dict()
