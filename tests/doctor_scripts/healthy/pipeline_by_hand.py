# activations to the next rank, their gradients back, without torch.distributed.pipelining
import torch
import torch.distributed as dist
import torch.nn as nn

LAYERS = 4

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(LAYERS)]
each = LAYERS // world_size
part = nn.Sequential(*layers[rank * each : (rank + 1) * each])
optimizer = torch.optim.Adam(part.parameters(), lr=1e-3)
for step in range(8):
    h = x = torch.randn(8, 16)  # all ranks draw the same
    optimizer.zero_grad()
    if rank > 0:
        h = torch.empty(8, 16)
        dist.recv(h, rank - 1)
        h.requires_grad_()
    out = part(h)
    if rank < world_size - 1:
        dist.send(out.detach(), rank + 1)
        gradient = torch.empty_like(out)
        dist.recv(gradient, rank + 1)
        out.backward(gradient)
    else:
        loss = nn.functional.mse_loss(out, x.flip(1))
        loss.backward()
        print(f"step {step} loss {loss.item():.4f}")
    if rank > 0:
        dist.send(h.grad, rank - 1)
    optimizer.step()
dist.destroy_process_group()
