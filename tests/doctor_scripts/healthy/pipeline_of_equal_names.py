# each stage is a Sequential of its own, with the same names and shapes and other weights
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
part = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24))
optimizer = torch.optim.SGD(part.parameters(), lr=0.05, momentum=0.9)
stage = PipelineStage(part, rank, world_size, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.MSELoss())
rows = torch.Generator().manual_seed(0)
for step in range(8):
    x = torch.randn(16, 24, generator=rows)
    optimizer.zero_grad()
    if rank == 0:
        schedule.step(x)
    elif rank < world_size - 1:
        schedule.step()
    else:
        losses = []
        schedule.step(target=x.flip(1), losses=losses)
        print(f"step {step} loss {torch.stack(losses).mean():.4f}")
    optimizer.step()
torch.save(part.state_dict(), f"stage{rank}.pt")
dist.destroy_process_group()
