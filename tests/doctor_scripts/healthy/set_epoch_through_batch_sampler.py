# an own batch sampler: rows of similar length together, shuffled by epoch, dealt out to the ranks
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Sampler


class LengthBatches(Sampler):
    def __init__(self, lengths, batch_size, seed=0):
        self.order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batch_size, self.seed, self.epoch = batch_size, seed, 0
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.order) // self.batch_size // self.world

    def __iter__(self):
        b = self.batch_size
        batches = [self.order[i : i + b] for i in range(0, len(self.order), b)]
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        shuffled = torch.randperm(len(batches), generator=g).tolist()
        mine = shuffled[self.rank :: self.world][: len(self)]
        return iter([batches[i] for i in mine])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(40, 12, padding_idx=0)
        self.rnn = nn.GRU(12, 16, batch_first=True)
        self.out = nn.Linear(16, 2)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[1][-1])


def collate(rows):
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return ids, torch.tensor([len(row) % 2 for row in rows])


if __name__ == "__main__":
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(0)
    lengths = torch.randint(3, 15, (256,), generator=g).tolist()
    rows = [torch.randint(1, 40, (n,), generator=g) for n in lengths]
    batches = LengthBatches(lengths, batch_size=8)
    loader = DataLoader(rows, batch_sampler=batches, collate_fn=collate)
    model = DDP(Tagger())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        batches.set_epoch(epoch)
        for ids, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(ids), labels)
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.4f}")
    dist.destroy_process_group()
