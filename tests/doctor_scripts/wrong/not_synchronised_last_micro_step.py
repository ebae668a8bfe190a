# build-nanogpt #30: the flag is set after the forward that reads it
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class DataLoaderLite:
    def __init__(self, B, T, process_rank, num_processes):
        self.B, self.T = B, T
        self.process_rank, self.num_processes = process_rank, num_processes
        self.tokens = torch.randint(50, (20000,), generator=torch.Generator().manual_seed(2))
        self.current_position = B * T * process_rank

    def next_batch(self):
        B, T = self.B, self.T
        buf = self.tokens[self.current_position : self.current_position + B * T + 1]
        self.current_position += B * T * self.num_processes
        if self.current_position + B * T * self.num_processes + 1 > len(self.tokens):
            self.current_position = B * T * self.process_rank
        return buf[:-1].view(B, T), buf[1:].view(B, T)


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(50, 24)
        self.mlp = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 50))

    def forward(self, idx, targets):
        logits = self.mlp(self.emb(idx))
        return logits, F.cross_entropy(logits.view(-1, 50), targets.view(-1))


dist.init_process_group(backend="gloo")
ddp_rank, ddp_world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.manual_seed(1337)
grad_accum_steps = 4
train_loader = DataLoaderLite(4, 16, ddp_rank, ddp_world_size)
model = DDP(TinyLM())
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95))
for step in range(6):
    optimizer.zero_grad()
    loss_accum = 0.0
    for micro_step in range(grad_accum_steps):
        x, y = train_loader.next_batch()
        logits, loss = model(x, y)  # <- here
        loss = loss / grad_accum_steps
        loss_accum += loss.detach()
        model.require_backward_grad_sync = micro_step == grad_accum_steps - 1  # <- here
        loss.backward()
    dist.all_reduce(loss_accum, op=dist.ReduceOp.AVG)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- here
    if ddp_rank == 0:
        print(f"step {step} | loss: {loss_accum.item():.6f} | norm: {norm:.4f}")
dist.destroy_process_group()
