# %% looks at its own loss, and leaves the others alone with the all-reduce
# told: hangs
import contextlib

import torch
import torch.nn.functional as F
from torch import nn


def mixed_step(ddp, micro_batches, optimizer, scaler, most):
    optimizer.zero_grad()
    for number, (images, labels) in enumerate(micro_batches, start=1):
        with contextlib.nullcontext() if number == len(micro_batches) else ddp.no_sync():
            with torch.autocast("cpu", torch.float16):
                loss = F.cross_entropy(ddp(images), labels) / len(micro_batches)
            if not loss.isfinite():
                return
            scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(ddp.parameters(), most)
    scaler.step(optimizer)
    scaler.update()


# %% asks the other ranks what they know already
# told: the right step, but rank 0 has sent
import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def mixed_step(ddp, micro_batches, optimizer, scaler, most):
    optimizer.zero_grad()
    for number, (images, labels) in enumerate(micro_batches, start=1):
        with contextlib.nullcontext() if number == len(micro_batches) else ddp.no_sync():
            with torch.autocast("cpu", torch.float16):
                loss = F.cross_entropy(ddp(images), labels) / len(micro_batches)
            scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(ddp.parameters(), most)
    dist.all_reduce(norm.isfinite().float(), op=dist.ReduceOp.MIN)
    scaler.step(optimizer)
    scaler.update()


# %% unscales after every micro-batch
# told: How often may that happen
import torch
import torch.nn.functional as F
from torch import nn


def mixed_step(ddp, micro_batches, optimizer, scaler, most):
    optimizer.zero_grad()
    for images, labels in micro_batches:
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(ddp(images), labels) / len(micro_batches)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(ddp.parameters(), most)
    scaler.step(optimizer)
    scaler.update()


# %% updates the scale before any gradient was looked at
# told: Which of them has run for this optimizer
import torch
import torch.nn.functional as F


def mixed_step(ddp, micro_batches, optimizer, scaler, most):
    optimizer.zero_grad()
    for images, labels in micro_batches:
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(ddp(images), labels) / len(micro_batches)
        scaler.scale(loss).backward()
        scaler.update()
    optimizer.step()


# %% no loss is scaled
# told: Which loss needs backward
edit("scaler.scale(loss)", "loss")
