"""train.py on page 02: what everybody writes first.

torchrun --standalone --nproc-per-node 2 -m ddp_workbook.program.train_02
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from ddp_workbook.program.task import loss_of, make_data, make_model
from ddp_workbook.program.train import join, leave


def main(checkpoint: str = "checkpoint.pt") -> None:
    device = join()
    torch.manual_seed(0)
    model = make_model().to(device)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    data = make_data()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in loader:
            loss = loss_of(ddp, batch, device)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}")
            torch.save(model.state_dict(), checkpoint)
    del ddp  # before its group: whoever frees a gloo group last can hang (torch 2.13)
    leave()


if __name__ == "__main__":
    main()
