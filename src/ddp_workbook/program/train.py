"""Train a model with DistributedDataParallel: on CPU cores, on one GPU, or on many.

python train.py
torchrun --standalone --nproc-per-node 4 train.py --epochs 3
"""

import argparse
import math
import os
import sys
import time
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_block(width: int) -> nn.Module:
    inside = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
    return nn.Sequential(nn.LayerNorm(width), *inside)


def make_model(width: int = 64) -> nn.Sequential:  # yours in place of this one
    return nn.Sequential(
        nn.Linear(64, width), make_block(width), make_block(width), nn.Linear(width, 10)
    )


def make_data(rows: int) -> TensorDataset:  # yours in place of this one
    inputs = torch.randn(rows, 64, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, inputs[:, :10].argmax(dim=1))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--batch", type=int, default=64, help="rows a step, of all ranks together")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches a step")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16")
    for name, default in {"epochs": 3, "seed": 0, "warm-up": 20, "lr": 3e-3, "clip": 1.0}.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
    return parser.parse_args()


def join() -> torch.device:
    """Join the ranks that torchrun has started; without torchrun be the only one."""
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    store = None if "RANK" in os.environ else dist.HashStore()
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if gpu else "gloo", store=store, rank=rank, world_size=ranks)
    return torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")


def save(path: Path, epoch: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Beside it, then renamed: a job that is killed meanwhile keeps the earlier checkpoint."""
    if dist.get_rank() == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)


def resume(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the checkpoint, if there is one; the epoch to begin with."""
    if not path.exists():
        return 0
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"] + 1


def rate(step: int, steps: int, warm_up: int) -> float:
    """The share of the learning rate: warm-up, then a cosine down to 0."""
    return min(1, (step + 1) / max(1, warm_up)) * (1 + math.cos(math.pi * step / steps)) / 2


def main() -> None:
    args, device = arguments(), join()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    rows, rest = divmod(args.batch, ranks * args.accumulate)
    if rest or not rows:
        raise SystemExit(f"--batch {args.batch} is no multiple of {ranks} ranks x --accumulate")
    torch.manual_seed(args.seed)
    model = make_model().to(device)
    ddp = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr)
    data = make_data(4096)
    sampler: DistributedSampler = DistributedSampler(data, seed=args.seed, drop_last=True)
    loader = DataLoader(data, rows, sampler=sampler, pin_memory=device.type == "cuda")
    steps = len(data) // args.batch  # an epoch
    for epoch in range(resume(args.checkpoint, model, optimizer), args.epochs):
        sampler.set_epoch(epoch)
        begun, total = time.perf_counter(), torch.zeros((), device=device)
        for number, batch in enumerate(islice(loader, steps * args.accumulate)):
            inputs, labels = (part.to(device, non_blocking=True) for part in batch)
            last = (number + 1) % args.accumulate == 0
            with nullcontext() if last else ddp.no_sync():
                with torch.autocast(device.type, torch.bfloat16, enabled=args.bf16):
                    loss = F.cross_entropy(ddp(inputs), labels) / args.accumulate
                loss.backward()
            total += loss.detach()
            if last:
                nn.utils.clip_grad_norm_(model.parameters(), args.clip)
                step = epoch * steps + number // args.accumulate
                for group in optimizer.param_groups:
                    group["lr"] = args.lr * rate(step, steps * args.epochs, args.warm_up)
                optimizer.step()
                optimizer.zero_grad()
        dist.all_reduce(total)  # one message an epoch
        if rank == 0:
            mean, seconds = total.item() / ranks / steps, time.perf_counter() - begun
            print(f"epoch {epoch}: loss {mean:.4f}, {steps * args.batch / seconds:,.0f} rows/s")
        save(args.checkpoint, epoch, model, optimizer)
    dist.barrier()
    dist.destroy_process_group()
    if device.type == "cpu":  # gloo can abort while Python shuts down (torch 2.13)
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
