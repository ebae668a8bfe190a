"""Train a language model on the bytes of a text: on 8 to 64 GPUs, or on the cores of a laptop.

    torchrun --standalone --nproc-per-node 4 src/ddp_workbook/chapters/fully_sharded_real_run.py

It needs nothing of the workbook. Copy it, put your data into `tokens_of` and your model in the
place of `Decoder`; `--help` lists the options.
"""

import argparse
import math
import os
import sys
import time
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import distribute_tensor
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

# Dense bf16 operations a second, by NVIDIA's datasheets; the names are those that torch gives.
PEAK_FLOPS = {"A100": 312e12, "H100 80GB HBM3": 989e12, "H200": 989e12, "B200": 2250e12}
aten = torch.ops.aten
SAVED_OPS = [  # a selective checkpoint keeps what these return, and computes the rest again
    aten.mm.default,
    aten.addmm.default,
    aten._scaled_dot_product_cudnn_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
]


@dataclass
class Settings:
    """The options of the command line."""

    text: Path = Path("data/alice.txt")
    vocabulary: int = 256  # bytes
    layers: int = 2
    width: int = 64
    heads: int = 4
    length: int = 64  # tokens of a sequence
    batch: int = 16  # sequences of a step, of all ranks together
    micro_batch: int = 2  # sequences of a rank in one forward; accumulation follows from both
    steps: int = 100
    warm_up: int = 10
    rate: float = 3e-3
    clip: float = 1.0
    seed: int = 0
    bf16: bool = False  # gather and compute in bfloat16; add gradients up in float32
    checkpointing: str = "selective"  # or "full", "none"
    keep_gradients: bool = False  # whole until the last micro-batch: one reduce-scatter a step
    compile: str = ""  # "inductor" compiles the blocks
    checkpoints: Path = Path("checkpoints")  # training goes on from the newest one in this folder
    save_every: int = 100
    log_every: int = 10

    def __post_init__(self) -> None:
        if self.checkpointing not in ("selective", "full", "none"):
            raise SystemExit(f"--checkpointing {self.checkpointing}: selective, full or none")


class Block(nn.Module):
    """Attention and a feed-forward layer on [batch, length, width]."""

    def __init__(self, width: int, heads: int, checkpointing: str) -> None:
        super().__init__()
        self.heads, self.checkpointing = heads, checkpointing
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.mix = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.checkpointing == "none":
            return self.compute(x)
        selective = partial(create_selective_checkpoint_contexts, SAVED_OPS)
        options = {} if self.checkpointing == "full" else {"context_fn": selective}
        return checkpoint(self.compute, x, use_reentrant=False, **options)

    def compute(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm_1(x)).unflatten(-1, (3 * self.heads, -1)).transpose(1, 2)
        q, k, v = parts.chunk(3, dim=1)  # [batch, heads, length, width / heads]
        attended = F.scaled_dot_product_attention(
            apply_rotary(q), apply_rotary(k), v, is_causal=True
        )
        x = x + self.mix(attended.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def apply_rotary(x: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021) of [..., length, size]."""
    length, half = x.shape[-2], x.shape[-1] // 2
    speeds = 10_000 ** (-torch.arange(half, device=x.device) / half)
    angles = torch.outer(torch.arange(length, device=x.device), speeds)  # float32, with bf16 too
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x1 * cos - x2 * sin, x1 * sin + x2 * cos), dim=-1)


class Decoder(nn.Module):
    """Tokens [batch, length] to logits [batch, length, vocabulary]; no buffers, see `build`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width, of_block = settings.width, (settings.width, settings.heads, settings.checkpointing)
        self.embedding = nn.Embedding(settings.vocabulary, width)
        self.blocks = nn.ModuleList(Block(*of_block) for _ in range(settings.layers))
        self.norm = nn.RMSNorm(width)
        self.output = nn.Linear(width, settings.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.output(self.norm(x))


def shard(model: Decoder, settings: Settings, device: torch.device) -> None:
    """A unit for each block, the embedding, and the output layer with its norm."""
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    options = {"mesh": init_device_mesh(device.type, (dist.get_world_size(),))}
    options |= {"mp_policy": policy} if settings.bf16 else {}
    fully_shard(model.embedding, **options)
    for block in model.blocks:
        if settings.compile:
            block.compile(backend=settings.compile)  # all have the same code, compiled once
        fully_shard(block, **options)
    last = [model.norm, model.output]  # backward begins with these, so they stay gathered
    fully_shard(last, reshard_after_forward=False, **options)
    fully_shard(model, **options)


@torch.no_grad()
def initialise(model: Decoder, settings: Settings, device: torch.device) -> None:
    """Draw each full tensor on all ranks and keep this rank's shard: no weight depends on N."""
    generator = torch.Generator(device).manual_seed(settings.seed)
    for name, shards in model.named_parameters():
        full = torch.ones(shards.shape, device=device)
        if "norm" not in name:
            adds = name.endswith(("mix.weight", "down.weight"))  # to what all blocks before did
            deviation = 0.02 / math.sqrt(2 * settings.layers) if adds else 0.02
            full.normal_(0, deviation, generator=generator)
        place = shards.device_mesh, shards.placements
        shards.copy_(distribute_tensor(full, *place, src_data_rank=None))  # None: send nothing


def build(settings: Settings, device: torch.device) -> tuple[Decoder, torch.optim.Optimizer]:
    """Model and optimizer in shards; no rank ever holds all of either."""
    with torch.device("meta"):  # shapes without memory
        model = Decoder(settings)
    shard(model, settings, device)
    model.to_empty(device=device)  # memory for this rank's shards; buffers would need values now
    initialise(model, settings, device)
    options = {"betas": (0.9, 0.95), "weight_decay": 0.1, "fused": True}
    return model, torch.optim.AdamW(model.parameters(), settings.rate, **options)


def memory_map(path: Path) -> Tensor:
    """The file's bytes [size]; only the pages that a rank looks at come into memory."""
    return torch.from_file(str(path), size=path.stat().st_size, dtype=torch.uint8)


def tokens_of(text: Tensor, settings: Settings, step: int, part: int) -> Tensor:
    """This rank's [micro_batch, length + 1] of a step; they follow from seed, step and rank."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    seed = (settings.seed * 1_000_003 + step) % 2**32  # a CPU's generator uses 32 bits
    generator = torch.Generator().manual_seed(seed)
    places = torch.randint(len(text) - settings.length, (settings.batch,), generator=generator)
    mine = places.view(-1, ranks, settings.micro_batch)[part, rank]
    return torch.stack([text[place : place + settings.length + 1] for place in mine.tolist()])


def rate(step: int, settings: Settings) -> float:
    """Warm-up, then a cosine down to a tenth."""
    if step < settings.warm_up:
        return settings.rate * (step + 1) / settings.warm_up
    share = (step - settings.warm_up) / (settings.steps - settings.warm_up)
    return settings.rate * (0.55 + 0.45 * math.cos(math.pi * share))


def training_step(
    model: Decoder,
    optimizer: torch.optim.Optimizer,
    text: Tensor,
    settings: Settings,
    step: int,
) -> tuple[Tensor, Tensor]:
    """One step of all micro-batches; the mean loss of this rank's, and the norm of the gradient."""
    assert isinstance(model, FSDPModule)
    device = model.embedding.weight.device
    total = torch.zeros((), device=device)
    parts = settings.batch // (dist.get_world_size() * settings.micro_batch)
    for part in range(parts):
        tokens = tokens_of(text, settings, step, part).to(device).long()
        model.set_requires_gradient_sync(part == parts - 1 or not settings.keep_gradients)
        logits = model(tokens[:, :-1]).float()
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / parts
        loss.backward()
        total += loss.detach()
    norm = nn.utils.clip_grad_norm_(model.parameters(), settings.clip)  # of all ranks' shards
    for group in optimizer.param_groups:
        group["lr"] = rate(step, settings)
    optimizer.step()
    optimizer.zero_grad()
    return total, norm


def flops_per_token(model: Decoder, settings: Settings) -> int:
    """Of forward and backward: 6 for each weight of a matrix product, and attention's own.

    Chowdhery et al. 2022, PaLM, appendix B: what is computed again does not count, and attention
    counts as if it were not causal. An embedding is looked up, and not multiplied.
    """
    matrices = sum(weight.numel() for weight in model.parameters() if weight.dim() == 2)
    matrices -= model.embedding.weight.numel()
    return 6 * matrices + 12 * settings.layers * settings.width * settings.length


def peak_flops(device: torch.device) -> float:
    """Operations a second that the GPU could do at most; nan if PEAKS does not know it."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return next((PEAK_FLOPS[gpu] for gpu in PEAK_FLOPS if gpu in name), math.nan)


def save(folder: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """All ranks, a new folder each time; its .metadata is written last, when it is complete."""
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder / f"step_{step:07}")


def resume(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the newest complete checkpoint, if there is one; the number of steps done."""
    newest = [max(folder.glob("step_*/.metadata"), default=None)]
    dist.broadcast_object_list(newest)  # on a network's file system, nodes may see different files
    if newest[0] is None:
        return 0
    weights, state = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": state}, checkpoint_id=newest[0].parent)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    return int(newest[0].parent.name.removeprefix("step_"))


def join() -> torch.device:
    """Join the ranks that torchrun has started; without torchrun be the only one."""
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    store = None if "RANK" in os.environ else dist.HashStore()
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if gpu else "gloo", store=store, rank=rank, world_size=ranks)
    return torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")


def train(settings: Settings) -> list[dict[str, float]]:
    """Train on all ranks; every rank returns the lines of the log."""
    device, ranks = join(), dist.get_world_size()
    if settings.batch % (ranks * settings.micro_batch):
        per_rank = f"{ranks} ranks x --micro-batch {settings.micro_batch}"
        raise SystemExit(f"--batch {settings.batch} is no multiple of {per_rank}")
    text = memory_map(settings.text)
    if len(text) <= settings.length:
        raise SystemExit(f"--length {settings.length}: {settings.text} has {len(text)} bytes")
    model, optimizer = build(settings, device)
    step = since = resume(settings.checkpoints, model, optimizer)
    log, start_time = [], time.perf_counter()
    while step < settings.steps:
        loss, norm = training_step(model, optimizer, text, settings, step)
        step += 1
        if step % settings.log_every == 0 or step == settings.steps:
            dist.all_reduce(loss)  # a message and a wait for the GPU, so not in every step
            line = {"step": step, "loss": loss.item() / ranks, "norm": norm.full_tensor().item()}
            tokens = (step - since) * settings.batch * settings.length
            line["tokens_per_s"] = round(tokens / (time.perf_counter() - start_time))
            if device.type == "cuda":
                flops = flops_per_token(model, settings) * line["tokens_per_s"]
                line["mfu"] = flops / (ranks * peak_flops(device))
                line["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
            log.append(line)
            if dist.get_rank() == 0:
                print(", ".join(f"{name} {round(value, 4):,}" for name, value in line.items()))
            since, start_time = step, time.perf_counter()
        if step % settings.save_every == 0 or step == settings.steps:
            save(settings.checkpoints, step, model, optimizer)
            since, start_time = step, time.perf_counter()
    dist.barrier()
    dist.destroy_process_group()
    return log


def arguments() -> Settings:
    """The settings, from the command line."""
    formatter = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser(formatter_class=formatter)
    for field in fields(Settings):
        kind = type(field.default)
        how = {"action": argparse.BooleanOptionalAction} if kind is bool else {"type": kind}
        name = "--" + field.name.replace("_", "-")
        parser.add_argument(name, default=field.default, help=" ", **how)
    return Settings(**vars(parser.parse_args()))


if __name__ == "__main__":
    train(arguments())
    if not torch.cuda.is_available():  # gloo can abort while Python shuts down (torch 2.13)
        sys.stdout.flush()
        os._exit(0)
