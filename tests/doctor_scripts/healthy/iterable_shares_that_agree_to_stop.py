# shares of unequal length: each rank says whether it has a batch, and all stop with the first
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Share(IterableDataset):
    def __init__(self, rank):
        self.rank = rank

    def __iter__(self):
        g = torch.Generator().manual_seed(100 + self.rank)
        return iter(torch.randn(24 + 6 * self.rank, 11, generator=g))


def main():
    dist.init_process_group("gloo")
    loader = DataLoader(Share(dist.get_rank()), batch_size=6)
    model = DDP(nn.Linear(11, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(2):
        batches = iter(loader)
        while True:
            x = next(batches, None)
            has_batch = torch.tensor(float(x is not None))
            dist.all_reduce(has_batch, op=dist.ReduceOp.MIN)
            if not has_batch:
                break
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
