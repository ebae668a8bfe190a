"""A DataLoader with two worker processes, a DistributedSampler, sys.exit at the end."""

import logging
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
    data = TensorDataset(torch.arange(16.0))
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=2, persistent_workers=True)
    seen = sum(batch.sum() for (batch,) in loader)
    dist.all_reduce(seen)
    logging.info("seen %g", seen.item())
    sys.exit(0)


if __name__ == "__main__":
    main()
