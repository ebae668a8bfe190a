# each rank makes the groups of all others as well, and uses its own: itself with its neighbour
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
pairs = [dist.new_group([first, first + 1]) for first in range(0, world, 2)]
mine = pairs[rank // 2]
head = dist.new_group([0])
model = DDP(nn.Linear(5, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(4):
    optimizer.zero_grad()
    loss = model(torch.randn(7, 5)).abs().mean()
    loss.backward()
    optimizer.step()
    of_pair = loss.detach()
    dist.all_reduce(of_pair, group=mine)
    if rank == 0:
        dist.all_reduce(of_pair, group=head)
dist.destroy_process_group()
