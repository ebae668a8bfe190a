"""Train what is in task.py with DistributedDataParallel; README.md says how to start it."""

import argparse
import os
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from ddp_workbook.chapters.checkpointing import Checkpointer
from ddp_workbook.chapters.stopping import listen, stop_requested
from ddp_workbook.program.task import loss_of, lr_factor, make_data, make_model

STOP_CHECK_INTERVAL = 10  # steps from question to question whether a rank was told to stop


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--epochs", type=int, default=3, help="in all, those of a checkpoint included")
    add("--steps", type=int, default=10**6, help="at most, of an epoch")
    add("--batch", type=int, default=64, help="samples a step, of all ranks together")
    add("--accumulate", type=int, default=1, help="micro-batches a step")
    add("--lr", type=float, default=3e-3, help="highest learning rate")
    add("--warm-up", type=int, default=20, help="steps of linear warm-up")
    add("--clip", type=float, default=1.0, help="largest norm of the gradient")
    add("--bf16", action="store_true", help="compute in bfloat16, keep weights in float32")
    add("--seed", type=int, default=0, help="of weights, shuffling and dropout")
    add("--workers", type=int, default=0, help="processes that load data, for each rank")
    add("--saved", type=Path, default=Path("saved"), help="folder to save to, and resume from")
    return parser.parse_args()


def join() -> torch.device:
    """Join torchrun's ranks, or be alone: on a GPU if each rank here has one, else on the CPU."""
    gpu = None
    enough = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if enough and dist.is_nccl_available():  # not on Windows
        gpu = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(gpu)  # else every rank also takes some memory of GPU 0
    backend = "nccl" if gpu else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend, device_id=gpu)
    else:
        alone = dist.HashStore()
        dist.init_process_group(backend, store=alone, rank=0, world_size=1, device_id=gpu)
    return gpu or torch.device("cpu")


def leave() -> None:
    """Leave the group when all ranks are done: a rank that leaves early looks like a dead one."""
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    args, device = arguments(), join()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    rows, rest = divmod(args.batch, ranks * args.accumulate)
    if rest:
        raise SystemExit(f"--batch {args.batch} does not divide by {ranks} ranks x --accumulate")
    args.saved.mkdir(parents=True, exist_ok=True)
    if not os.access(args.saved, os.W_OK):  # better now than after an epoch
        raise SystemExit(f"--saved {args.saved}: this folder cannot be written")
    torch.manual_seed(args.seed)  # the same weights on all ranks
    model = make_model().to(device)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr)
    data = make_data()
    sampler: DistributedSampler = DistributedSampler(data, seed=args.seed, drop_last=True)
    pin = device.type == "cuda"
    loader = DataLoader(
        data, rows, sampler=sampler, drop_last=True, num_workers=args.workers, pin_memory=pin
    )
    steps = min(args.steps, len(loader) // args.accumulate)  # of an epoch
    if steps < 1:
        raise SystemExit(f"{len(data)} samples are too few for one step of --batch {args.batch}")
    checkpointer, signals = Checkpointer(args.saved, model, optimizer), listen()
    start = checkpointer.load()["step"]
    if start and rank == 0:
        print(f"{args.saved}: {start} of {args.epochs * steps} steps are done", flush=True)
    for epoch in range(start // steps, args.epochs):
        sampler.set_epoch(epoch)
        since, batches, total = time.perf_counter(), iter(loader), torch.zeros((), device=device)
        first = max(start, epoch * steps)
        for _ in range((first - epoch * steps) * args.accumulate):
            next(batches)  # trained before
        for step in range(first, (epoch + 1) * steps):
            torch.manual_seed(args.seed + step * ranks + rank)  # dropout differs between ranks
            for micro in range(args.accumulate):
                last = micro == args.accumulate - 1
                with nullcontext() if last else ddp.no_sync():  # one all-reduce a step
                    with torch.autocast(device.type, torch.bfloat16, enabled=args.bf16):
                        loss = loss_of(ddp, next(batches), device) / args.accumulate
                    loss.backward()
                total += loss.detach()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            for group in optimizer.param_groups:
                group["lr"] = args.lr * lr_factor(step, steps * args.epochs, args.warm_up)
            optimizer.step()
            optimizer.zero_grad()
            if (step + 1) % STOP_CHECK_INTERVAL == 0 and stop_requested(signals, device):
                checkpointer.save(step + 1)
                if rank == 0:
                    print(f"told to stop: saved after {step + 1} steps", flush=True)
                return
        dist.all_reduce(total)
        count = (epoch + 1) * steps - first
        mean = total.item() / ranks / count
        rate = args.batch * count / (time.perf_counter() - since)
        checkpointer.save((epoch + 1) * steps)
        if rank == 0:
            print(f"epoch {epoch}: loss {mean:.4f}, {rate:,.0f} samples/s", flush=True)


if __name__ == "__main__":
    main()
    backend = dist.get_backend()
    leave()  # main has freed its model: whoever frees a gloo group last can hang (torch 2.13)
    if backend == "gloo":
        os._exit(0)  # gloo can abort while Python shuts down (torch 2.13, one run in 40)
