"""train.py on page 06: weights, gradients and optimizer state in shards.

torchrun --standalone --nproc-per-node 2 -m ddp_workbook.program.train_06
"""

from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from ddp_workbook.program.checkpoints_sharded import Checkpointer
from ddp_workbook.program.sharded import shard
from ddp_workbook.program.task import loss_of, make_data, make_model
from ddp_workbook.program.train import join, leave


def main(checkpoint: str = "checkpoints", global_batch: int = 64) -> None:
    device = join()
    rows, rest = divmod(global_batch, dist.get_world_size())
    if rest:
        raise SystemExit(f"A batch of {global_batch} cannot be shared evenly.")
    torch.manual_seed(0)
    model = shard(make_model(), device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    data = make_data()
    sampler = DistributedSampler(data, seed=0, drop_last=True)
    loader = DataLoader(data, batch_size=rows, sampler=sampler, drop_last=True)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for batch in loader:
            loss = loss_of(model, batch, device)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach()
        dist.all_reduce(total, dist.ReduceOp.SUM)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {total.item() / dist.get_world_size() / len(loader):.4f}")
        Checkpointer(Path(checkpoint), model, optimizer).save(epoch + 1)
    leave()


if __name__ == "__main__":
    main()
