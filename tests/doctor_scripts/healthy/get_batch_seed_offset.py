# nanoGPT as meant: the seed is offset by the rank, the flag is set before the forward
import os

import torch
import torch.nn as nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

batch_size, block_size, vocab_size, n_embd = 4, 16, 40, 24
gradient_accumulation_steps = 8
init_process_group(backend="gloo")
ddp_rank = int(os.environ["RANK"])
ddp_world_size = int(os.environ["WORLD_SIZE"])
master_process = ddp_rank == 0
assert gradient_accumulation_steps % ddp_world_size == 0
gradient_accumulation_steps //= ddp_world_size
torch.manual_seed(1337 + ddp_rank)
data = torch.randint(vocab_size, (5000,), generator=torch.Generator().manual_seed(1))


def get_batch():
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


class Bigram(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx, targets):
        logits = self.lm_head(self.wte(idx))
        return logits, F.cross_entropy(logits.view(-1, vocab_size), targets.view(-1))


model = DDP(Bigram())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
X, Y = get_batch()
for iter_num in range(8):
    for micro_step in range(gradient_accumulation_steps):
        model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        logits, loss = model(X, Y)
        loss = loss / gradient_accumulation_steps
        X, Y = get_batch()
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if master_process and iter_num % 4 == 0:
        print(f"iter {iter_num}: loss {loss.item() * gradient_accumulation_steps:.4f}")
destroy_process_group()
