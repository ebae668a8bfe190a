# rank 0 makes the batches and takes no step; the others train in a group of their own
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
learners = dist.new_group(list(range(1, world)))
if rank > 0:
    model = DDP(nn.Linear(6, 2), process_group=learners)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(5):
    batch = torch.randn(3, 6) * rank
    if rank == 0:
        for learner in range(1, world):
            dist.send(torch.randn(3, 6), learner)
    else:
        dist.recv(batch, 0)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    dist.barrier()
dist.destroy_process_group()
