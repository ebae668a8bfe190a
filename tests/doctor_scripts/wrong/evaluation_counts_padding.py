# pytorch #25162, rf-detr #1507: the sampler pads the validation set, and all rows count
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
def validate(model, loader):
    model.eval()
    correct, seen = torch.zeros(1), torch.zeros(1)
    for x, y in loader:  # <- here
        correct += (model(x).argmax(1) == y).sum()
        seen += len(y)
    dist.all_reduce(correct)
    dist.all_reduce(seen)
    return (correct / seen).item()  # <- here


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    train_set, val_set = blobs(256, 0), blobs(101, 1)
    train_sampler = DistributedSampler(train_set)
    val_sampler = DistributedSampler(val_set, shuffle=False)  # <- here
    train_loader = DataLoader(train_set, batch_size=16, sampler=train_sampler)
    val_loader = DataLoader(val_set, batch_size=16, sampler=val_sampler)
    model = DDP(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(2):
        train_sampler.set_epoch(epoch)
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        accuracy = validate(model, val_loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: val accuracy {accuracy:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
