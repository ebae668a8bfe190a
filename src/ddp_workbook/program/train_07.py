"""train.py on page 07: what a job has not finished, the next one continues.

torchrun --standalone --nproc-per-node 2 -m ddp_workbook.program.train_07
"""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from ddp_workbook.program.task import loss_of, make_data, make_model
from ddp_workbook.program.train import join, leave


def save(path: Path, epochs: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Rank 0 writes a new file and renames it: if it is killed meanwhile, the old one is whole."""
    if dist.get_rank() == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epochs}
        new = path.with_name(path.name + ".new")
        torch.save(state, new)
        new.replace(path)


def resume(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the checkpoint, if there is one; return how many epochs are done."""
    there = [path.exists()]
    dist.broadcast_object_list(there)  # rank 0 decides: a node may not see the file
    if not there[0]:
        return 0
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epochs"]


def main(checkpoint: str = "checkpoint.pt", global_batch: int = 64) -> None:
    device = join()
    rows, rest = divmod(global_batch, dist.get_world_size())
    if rest:
        raise SystemExit(f"A batch of {global_batch} cannot be shared evenly.")
    torch.manual_seed(0)
    model = make_model().to(device)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    data = make_data()
    sampler = DistributedSampler(data, seed=0, drop_last=True)
    loader = DataLoader(data, batch_size=rows, sampler=sampler, drop_last=True)
    start = resume(Path(checkpoint), model, optimizer)
    for epoch in range(start, 3):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for batch in loader:
            loss = loss_of(ddp, batch, device)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach()
        dist.all_reduce(total, dist.ReduceOp.SUM)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {total.item() / dist.get_world_size() / len(loader):.4f}")
        save(Path(checkpoint), epoch + 1, model, optimizer)
    del ddp  # before its group: whoever frees a gloo group last can hang (torch 2.13)
    leave()


if __name__ == "__main__":
    main()
