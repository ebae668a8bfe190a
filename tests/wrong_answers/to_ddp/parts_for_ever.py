# wrong: cuts first and shuffles then, so that a rank never sees the others' rows
# told: Which comes first, shuffling or dealing
# right at: 1
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset


def to_ddp(dataset, make_model, epochs, batch_size):
    mine = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
    loader = DataLoader(mine, batch_size // dist.get_world_size(), shuffle=True)
    model = make_model()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(ddp(images), labels)
            loss.backward()
            optimizer.step()
    return model.state_dict()
