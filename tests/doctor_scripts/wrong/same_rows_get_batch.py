# rbyte #106: the same seed on every rank, so get_batch draws the same windows everywhere
import os

import torch
import torch.nn as nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

# -----------------------------------------------------------------------------
batch_size = 8
block_size = 16
vocab_size = 40
n_embd = 32
max_iters = 12
learning_rate = 1e-3
# -----------------------------------------------------------------------------
init_process_group(backend="gloo")
ddp_rank = int(os.environ["RANK"])
master_process = ddp_rank == 0
torch.manual_seed(1337)  # <- here
data = torch.randint(vocab_size, (5000,), generator=torch.Generator().manual_seed(1))


def get_batch():
    ix = torch.randint(len(data) - block_size - 1, (batch_size,))  # <- here
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.block = nn.TransformerEncoderLayer(n_embd, 4, 64, dropout=0.0, batch_first=True)
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx, targets):
        T = idx.size(1)
        h = self.wte(idx) + self.wpe(torch.arange(T))
        h = self.block(h, src_mask=nn.Transformer.generate_square_subsequent_mask(T))
        logits = self.lm_head(h)
        return logits, F.cross_entropy(logits.view(-1, vocab_size), targets.view(-1))


model = DDP(GPT())
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
X, Y = get_batch()
for iter_num in range(max_iters):
    logits, loss = model(X, Y)  # <- here
    X, Y = get_batch()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if master_process and iter_num % 4 == 0:
        print(f"iter {iter_num}: loss {loss.item():.4f}")
destroy_process_group()
