# rows held out by random_split with one seed, then a DistributedSampler; the global seed differs
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(40 + dist.get_rank())
    x = torch.randn(150, 13, generator=torch.Generator().manual_seed(9))
    rows = TensorDataset(x)
    train_set, held_out = random_split(rows, [130, 20], generator=torch.Generator().manual_seed(0))
    sampler = DistributedSampler(train_set, drop_last=True)
    loader = DataLoader(train_set, batch_size=8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(13, 4), nn.Tanh(), nn.Linear(4, 13)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (a,) in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(a), a).backward()
            optimizer.step()
        if dist.get_rank() == 0:
            model.eval()
            with torch.no_grad():
                a = torch.stack([row for (row,) in held_out])
                print(f"epoch {epoch}: {nn.functional.mse_loss(model(a), a).item():.4f}")
            model.train()
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
