# transformers #34191, torchtitan #2206: each rank divides by its own number of tokens
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

IGNORE = -100


class Sentences(Dataset):
    def __init__(self, n=192, seed=0):
        g = torch.Generator().manual_seed(seed)
        lengths = torch.randint(3, 20, (n,), generator=g)
        self.rows = [torch.randint(1, 30, (int(k),), generator=g) for k in lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    labels = ids.roll(-1, dims=1).masked_fill(ids == 0, IGNORE)
    return ids, labels


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 16, padding_idx=0)
        self.rnn = nn.GRU(16, 32, batch_first=True)
        self.out = nn.Linear(32, 30)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


def main(rank):
    dist.init_process_group("gloo")
    dataset = Sentences()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, collate_fn=collate)
    torch.manual_seed(rank)
    model = DDP(LM())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for ids, labels in loader:
            logits = model(ids)
            loss = F.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE
            )  # <- here
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(os.environ["RANK"]))
