# transformers #34191 mended: divided by the tokens of all ranks; times W, as DDP averages
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def sentences(n=192, seed=0):
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 20, (n,), generator=g)
    return [torch.randint(1, 30, (int(k),), generator=g) for k in lengths]


def collate(rows):
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return ids, ids.roll(-1, dims=1).masked_fill(ids == 0, -100)


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 16, padding_idx=0)
        self.rnn = nn.GRU(16, 32, batch_first=True)
        self.out = nn.Linear(32, 30)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


def main():
    dist.init_process_group("gloo")
    world_size = dist.get_world_size()
    dataset = sentences()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, collate_fn=collate)
    model = DDP(LM())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for ids, labels in loader:
            tokens = (labels != -100).sum()
            dist.all_reduce(tokens)
            logits = model(ids).flatten(0, 1)
            total = F.cross_entropy(logits, labels.flatten(), ignore_index=-100, reduction="sum")
            loss = total * world_size / tokens
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
