# all_gather keeps no graph: each rank writes its own rows back, and logs a reduced metric
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Retriever(nn.Module):
    def __init__(self):
        super().__init__()
        self.question, self.passage = nn.Linear(10, 6), nn.Linear(14, 6)

    def forward(self, q, p):
        return self.question(q), self.passage(p)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    g = torch.Generator().manual_seed(11)
    dataset = TensorDataset(torch.randn(96, 10, generator=g), torch.randn(96, 14, generator=g))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=6, sampler=sampler)
    model = DDP(Retriever())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for q, p in loader:
            questions, passages = model(q, p)
            n = len(passages)
            everyone = [torch.empty_like(passages) for _ in range(world)]
            dist.all_gather(everyone, passages)
            everyone[rank] = passages
            scores = questions @ torch.cat(everyone).T
            loss = nn.functional.cross_entropy(scores, rank * n + torch.arange(n))
            mean_loss = loss.clone()
            dist.all_reduce(mean_loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {mean_loss.item() / world:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
