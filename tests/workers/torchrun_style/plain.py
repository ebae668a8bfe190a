"""The environment read by hand, an explicit init method and timeout, an explicit end."""

import datetime
import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(rank: int, local_rank: int) -> float:
    torch.manual_seed(rank)
    model = DDP(torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8) * (local_rank + 1)).pow(2).mean()
        loss.backward()
        optimizer.step()
    return sum(p.sum().item() for p in model.parameters())


def main():
    rank = int(os.environ["RANK"])
    local_rank = int(os.environ["LOCAL_RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        backend="gloo",
        init_method="env://",
        timeout=datetime.timedelta(minutes=5),
    )
    total = train(rank, local_rank)
    names = sorted(n for n in os.environ if "RANK" in n or "WORLD" in n or n.startswith("MASTER"))
    names += sorted(n for n in os.environ if n.startswith("TORCHELASTIC"))
    print(json.dumps({"rank": rank, "of": world_size, "total": round(total, 5), "names": names}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
