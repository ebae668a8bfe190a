# vision #4559 mended: predictions are gathered, interleaved and cut to the true number of rows
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def blobs(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (n,), generator=g)
    centres = torch.tensor([[2.0, 0.0], [-2.0, 1.0], [0.0, -2.0]])
    return TensorDataset(centres[y] + torch.randn(n, 2, generator=g), y)


@torch.no_grad()
def evaluate(model, dataset):
    model.eval()
    loader = DataLoader(dataset, 16, sampler=DistributedSampler(dataset, shuffle=False))
    hits = torch.cat([(model(x).argmax(1) == y).float() for x, y in loader])
    everyone = [torch.empty_like(hits) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, hits)
    # DistributedSampler deals rows like cards: rank r has r, r + W, ...; the rest is padding
    in_order = torch.stack(everyone, dim=1).flatten()[: len(dataset)]
    model.train()
    return in_order.mean().item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    train_set, val_set = blobs(240, 0), blobs(101, 1)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=10, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        accuracy = evaluate(model, val_set)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: accuracy {accuracy:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
