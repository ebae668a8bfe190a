"""The driver script, for torchrun: three lines of driver_script.py have changed, and one has gone.

torchrun --standalone --nproc-per-node 2 driver_for_torchrun.py --epochs 2
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F

from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP, batches


def main() -> None:
    """Read the options, and start a process for each GPU of this machine."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=1, help="of this machine")
    parser.add_argument("--nr", type=int, default=0, help="the number of this machine")
    parser.add_argument("--port", default="29500")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    train(int(os.environ["LOCAL_RANK"]), args)


def train(gpu: int, args: argparse.Namespace) -> None:
    """What each process does; `gpu` is its number on this machine."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model, digits = DigitsMLP(), DigitsDataset()
    for epoch in range(args.epochs):
        for images, labels in batches(digits, 256, epoch):
            loss = F.cross_entropy(model(images[rank::world_size]), labels[rank::world_size])
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.data -= 0.5 * parameter.grad / world_size
                parameter.grad = None
        if rank == 0:
            print(f"{world_size} ranks, epoch {epoch}: loss {loss.item():.2f}", flush=True)
    dist.barrier()
    os._exit(0)  # at once: gloo can abort while Python shuts down (torch 2.13)


if __name__ == "__main__":
    main()
