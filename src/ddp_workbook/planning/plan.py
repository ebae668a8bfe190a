"""`plan`: whether a model fits on these GPUs, what a step sends, and what bounds a step."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import pandas as pd
import torch

from ddp_workbook.planning import formulas
from ddp_workbook.planning.activations import at_the_loss, in_backward
from ddp_workbook.planning.decoder import DecoderShape, decoder_shape
from ddp_workbook.planning.formulas import PARTS, Ledger
from ddp_workbook.planning.fsdp_step import FsdpStep, Message, Pieces, in_words, reshard_to
from ddp_workbook.planning.hardware import BETWEEN, COMPUTE_SHARE, GPUS, INSIDE, Gpu, named
from ddp_workbook.planning.messages import ddp_messages, summed, zero_1_messages
from ddp_workbook.planning.sharding import local_shapes
from ddp_workbook.planning.shards import numel
from ddp_workbook.planning.sizes import (
    PlanRefused,
    byte_count,
    in_bytes,
    in_count,
    in_gb,
    in_seconds,
    one_of,
    squeezed,
    whole_number,
)
from ddp_workbook.planning.speed import Cluster, call_seconds, flops

STRATEGIES = ("fully_shard", "HSDP", "DDP", "ZeRO-1")
ALIASES = {"fsdp": "fully_shard", "fsdp2": "fully_shard", "zero3": "fully_shard"}
PRECISIONS = ("bf16", "fp32")
TIGHT = 0.9  # of the memory: the rest is for CUDA, NCCL and fragmentation
MOST_GPUS = 2**16  # torch takes long to cut into more
SHORTEST = 512  # tokens; no shorter sequence is proposed


@dataclass(frozen=True)
class Settings:
    """The arguments of `plan`, checked."""

    gpus: int
    memory: int
    strategy: str
    precision: str
    reshard_after_forward: bool | int
    offload: bool
    checkpoint: bool
    batch: int
    sequence: int
    shards: int  # ranks that share one model; the others hold copies (HSDP)
    gpu: Gpu
    cluster: Cluster

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of forward and backward."""
        return torch.bfloat16 if self.precision == "bf16" else torch.float32

    @property
    def replicas(self) -> int:
        """How many groups of `shards` ranks there are."""
        return self.gpus // self.shards

    @property
    def sharded(self) -> bool:
        """Whether `fully_shard` cuts the model."""
        return self.strategy in ("fully_shard", "HSDP")


@dataclass(frozen=True)
class Plan:
    """The result of `plan`; `print` it for a page in words.

    ledger
        Bytes on the fullest rank, by part (`formulas.Ledger`), at the worse of two moments.
    moment
        That moment: "the loss", when activations peak, or "backward", when most pieces are whole.
        Gradients count in both: FSDP2 makes them in a stream of its own, and the allocator keeps
        the memory that `zero_grad()` frees for that stream.
    whole
        The full-size pieces of `ledger.unsharded`, in bytes, by name.
    messages
        The calls of a step on rank 0, in order (`fsdp_step.Message`).
    compute_seconds, network_seconds
        Lower bounds of a step: arithmetic at half of the GPU's peak, and all calls one after the
        other.
    would_fit
        Changes that make it fit, in words; empty if it fits as it is.
    """

    shape: DecoderShape
    settings: Settings
    ledger: Ledger
    moment: str
    whole: Mapping[str, int]
    messages: tuple[Message, ...]
    compute_seconds: float
    network_seconds: float
    would_fit: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the bytes on a GPU are no more than its memory."""
        return self.ledger.device <= self.settings.memory

    @property
    def times(self) -> float:
        """The needed memory as a multiple of a GPU's."""
        return self.ledger.device / self.settings.memory

    @property
    def bound_by(self) -> str:
        """ "compute" or "network": which of them takes longer."""
        return "compute" if self.compute_seconds >= self.network_seconds else "network"

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second of one GPU, if the longer of compute and network hides the other."""
        tokens = self.settings.batch * self.settings.sequence
        return tokens / max(self.compute_seconds, self.network_seconds)

    @property
    def on_gpu(self) -> dict[str, int]:
        """Bytes on each GPU, by part, without the empty parts."""
        parts = {part: getattr(self.ledger, part) for part in PARTS}
        if self.ledger.offloaded:
            parts |= dict.fromkeys(("parameters", "gradients", "optimizer"), 0)
        return {part: size for part, size in parts.items() if size}

    @cached_property
    def calls(self) -> pd.DataFrame:
        """A row for each kind of call: op, when, calls, bytes handed in, bytes received."""
        return summed(self.messages)

    @property
    def verdict(self) -> str:
        """Whether it fits, in a sentence; if not, what would."""
        memory = in_gb(self.settings.memory)
        if self.fits:
            words = f"fits: {in_bytes(self.ledger.device)} of {memory} ({self.times:.0%})"
            barely = "; barely, because CUDA, NCCL and the allocator need some as well"
            return words + (barely if self.times > TIGHT else "")
        ways = "; ".join(self.would_fit) or "nothing that plan knows; it needs tensor parallelism"
        return f"does not fit: needs {self.times:.1f} x {memory}; what would: {ways}"

    @property
    def bound(self) -> str:
        """Which of compute and network a step is bound by, in a sentence."""
        compute, network = in_seconds(self.compute_seconds), in_seconds(self.network_seconds)
        if not self.messages:
            return f"bound by compute: {compute}; nothing is sent"
        return f"bound by {self.bound_by}: {compute} of compute, {network} of network"

    def __str__(self) -> str:
        parts = [f"  {part:<13}{in_bytes(size):>9}" for part, size in self.on_gpu.items()]
        if self.ledger.host:
            parts.append(f"  on the host  {in_bytes(self.ledger.host):>9}, not counted below")
        calls = [
            f"  {c.calls:>5} {c.op:<22} in {c.when:<14} "
            f"{in_bytes(c.bytes):>8} handed in, {in_bytes(c.received):>8} received"
            for c in self.calls.itertuples()
        ]
        return "\n".join(
            [
                title(self.shape, self.settings),
                "",
                f"Bytes on each GPU at the worst moment, {self.moment}",
                *parts,
                f"  {'together':<13}{in_bytes(self.ledger.device):>9}",
                "",
                "Calls of a step on each GPU",
                *(calls or ["  none"]),
                "",
                self.verdict[0].upper() + self.verdict[1:] + ".",
                self.bound[0].upper() + self.bound[1:] + ".",
            ]
        )


def plan(
    parameters: str | int | float | DecoderShape | Mapping = "70B",
    gpus: int = 64,
    memory: str | int | None = None,
    *,
    strategy: str = "fully_shard",
    precision: str = "bf16",
    reshard_after_forward: bool | int = True,
    offload: bool = False,
    checkpoint: bool = True,
    batch: int = 1,
    sequence: int = 4096,
    shards: int | None = None,
    gpu: str = "H100",
    link: str = "InfiniBand NDR",
    inside: str | None = None,
    gpus_per_node: int = 8,
    every_block: bool = False,
) -> Plan:
    """Bytes on each GPU, calls of a step, whether it fits and what it is bound by. No GPU needed.

    parameters
        A size ("70B", 70e9), the name of a published model ("Llama 3 70B", "GPT-3 175B"), a
        DecoderShape, or a config with the names of a Hugging Face `config.json`.
    gpus, memory
        How many, and the memory of each ("80GB", "80GiB", or bytes); by default that of `gpu`.
    strategy
        "fully_shard" (each block and the root), "HSDP", "DDP" or "ZeRO-1". AdamW with fp32
        parameters in all of them.
    precision
        "bf16": MixedPrecisionPolicy(param_dtype=bfloat16, reduce_dtype=float32), for DDP autocast.
        "fp32": everything in fp32, multiplied as TF32.
    reshard_after_forward, offload, checkpoint
        As in `fully_shard`; CPUOffloadPolicy; activation checkpointing of each block.
    batch, sequence
        Sequences on each GPU, and tokens in each.
    shards
        For HSDP: ranks that share one model; by default those of a node.
    gpu, link, inside, gpus_per_node
        "A100 40GB", "A100", "H100", "H200", "RTX 4090"; between nodes "InfiniBand NDR" or "HDR",
        "Ethernet 100G", "25G", "10G"; in a node "NVLink 3" or "4", "PCIe 4" or "5".
    every_block
        Cut every block with `fully_shard`, instead of one for all. The numbers are the same.

    Parameters, gradients and optimizer state are read from the DTensors that `fully_shard` makes
    for rank 0 of `gpus` fake ranks. Whole pieces, activations and calls come from formulas, which
    tests compare with real steps. Raises PlanRefused (a ValueError) for arguments that make no
    sense, with a remedy, and in a process that belongs to a process group.
    """
    shape = decoder_shape(parameters)
    device = named(GPUS, one_of(gpu, "gpu", [one.name for one in GPUS]))
    between = named(BETWEEN, one_of(link, "link", [one.name for one in BETWEEN]))
    in_node = one_of(inside or device.inside, "inside", [one.name for one in INSIDE])
    gpus = whole_number(gpus, "gpus", most=MOST_GPUS)
    gpus_per_node = whole_number(gpus_per_node, "gpus_per_node", most=1024)
    strategy = ALIASES.get(squeezed(str(strategy)), strategy)
    strategy = one_of(strategy, "strategy", list(STRATEGIES))
    settings = Settings(
        gpus=gpus,
        memory=device.memory if memory is None else byte_count(memory),
        strategy=strategy,
        precision=one_of(precision, "precision", list(PRECISIONS)),
        reshard_after_forward=reshard_after_forward,
        offload=offload,
        checkpoint=checkpoint,
        batch=whole_number(batch, "batch"),
        sequence=whole_number(sequence, "sequence", most=10**9),
        shards=shards_of(strategy, gpus, shards, gpus_per_node),
        gpu=device,
        cluster=Cluster(named(INSIDE, in_node), between, gpus_per_node),
    )
    check(settings)
    found = estimate(shape, settings)
    if settings.sharded:
        found = replace(found, ledger=from_torch(found, every_block))
    return found if found.fits else replace(found, would_fit=ways_to_fit(shape, settings))


def shards_of(strategy: str, gpus: int, shards: int | None, gpus_per_node: int) -> int:
    """Over how many ranks one model is cut. Raises PlanRefused if that does not divide them."""
    if strategy != "HSDP":
        if shards is not None:
            raise PlanRefused(f'shards={shards} is for strategy="HSDP", not for "{strategy}".')
        return gpus
    shards = whole_number(
        min(gpus_per_node, gpus) if shards is None else shards, "shards", most=gpus
    )
    if gpus % shards:
        raise PlanRefused(
            f"shards={shards} does not divide {gpus} GPUs: HSDP needs groups of equal size."
        )
    return shards


def check(settings: Settings) -> None:
    """Raise PlanRefused for settings that contradict each other."""
    if settings.offload and not settings.sharded:
        raise PlanRefused(f"offload is a policy of fully_shard; {settings.strategy} has none.")
    number = settings.reshard_after_forward
    if not isinstance(number, int):
        raise PlanRefused(f"reshard_after_forward={number!r} is neither True, False nor a number.")
    try:
        reshard_to(number, settings.shards)
    except ValueError as error:
        raise PlanRefused(str(error)) from None


def estimate(shape: DecoderShape, settings: Settings) -> Plan:
    """The plan by formulas only, which is fast enough to try many."""
    if settings.sharded:
        step = fsdp_step(shape, settings)
        ledger, messages = formulas.of_step(step, offload=settings.offload), step.messages
        whole: dict[str, Pieces] = {"backward": step.largest, "the loss": step.at_the_loss}
    else:
        ledger, messages = replicated(shape, settings)
        whole = {"backward": {}, "the loss": {}}
    tokens, how = settings.batch * settings.sequence, (settings.dtype, settings.checkpoint)
    moments = {
        "backward": replace(ledger, activations=in_backward(shape, tokens, *how)),
        "the loss": replace(
            ledger,
            unsharded=sum(whole["the loss"].values()),
            activations=at_the_loss(shape, tokens, *how),
        ),
    }
    moment = max(moments, key=lambda name: moments[name].device)
    operations = flops(shape, tokens, settings.sequence, checkpoint=settings.checkpoint)
    slower = 1 if settings.precision == "bf16" else 2
    return Plan(
        shape,
        settings,
        moments[moment],
        moment,
        in_words(whole[moment]),
        tuple(messages),
        slower * operations / (COMPUTE_SHARE * settings.gpu.flops),
        sum(call_seconds(message, settings.cluster) for message in messages),
    )


def fsdp_step(shape: DecoderShape, settings: Settings) -> FsdpStep:
    """A step of `fully_shard`, with MixedPrecisionPolicy for bf16."""
    return FsdpStep(
        shape.units,
        settings.shards,
        settings.reshard_after_forward,
        param_dtype=settings.dtype,
        reduce_dtype=torch.float32,
        replicas=settings.replicas,
        root_first=shape.root_first,
    )


def replicated(shape: DecoderShape, settings: Settings) -> tuple[Ledger, list[Message]]:
    """Ledger and calls of DDP and ZeRO-1, with autocast for bf16."""
    units, ranks, last = shape.units, settings.gpus, shape.root_last
    if settings.strategy == "ZeRO-1":
        ledger = formulas.zero_1(units, ranks)
        messages = zero_1_messages(units, ranks, root_first=last)
    else:
        ledger = formulas.ddp(units) if ranks > 1 else formulas.one_process(units)
        messages = ddp_messages(units, ranks, root_first=last)
    copies = autocast_copies(shape) if settings.precision == "bf16" else 0
    return replace(ledger, copies=copies), messages


def autocast_copies(shape: DecoderShape) -> int:
    """Bytes of the bf16 copies of weights that autocast keeps from forward to backward."""
    weights = [s for unit in shape.units[1:] for s in unit if len(s) > 1]
    return 2 * (sum(map(prod, weights)) + shape.vocabulary * shape.width)


def from_torch(found: Plan, every_block: bool) -> Ledger:
    """The plan's ledger, in which what a rank keeps is read from the shards of `fully_shard`."""
    settings, states = found.settings, formulas.ADAMW
    units = local_shapes(found.shape, settings.shards, settings.replicas, every_block=every_block)
    kept = numel(units) * torch.float32.itemsize
    optimizer = states * kept + formulas.counters(units, states)
    return replace(found.ledger, parameters=kept, gradients=kept, optimizer=optimizer)


def ways_to_fit(shape: DecoderShape, settings: Settings) -> tuple[str, ...]:
    """Changes after which the plan fits: each alone; if none is enough, the first few together."""
    changes = possible_changes(shape, settings)
    alone = [words for words, change in changes if fits(shape, replace(settings, **change))]
    if alone:
        return tuple(alone)
    together, words = settings, list[str]()
    while changes := possible_changes(shape, together):
        word, change = changes[0]
        together, words = replace(together, **change), [*words, word]
        if fits(shape, together):
            return (", ".join(words),)
    return ()


def possible_changes(shape: DecoderShape, settings: Settings) -> list[tuple[str, dict[str, Any]]]:
    """Possible changes, in words and as settings, the cheapest first."""

    def first_that_fits(changes: list[dict[str, Any]]) -> dict[str, Any] | None:
        return next((c for c in changes if fits(shape, replace(settings, **c))), None)

    changes: list[tuple[str, dict[str, Any]]] = []
    if not settings.checkpoint:
        changes.append(("activation checkpointing", {"checkpoint": True}))
    if settings.strategy != "fully_shard":
        whole = {"strategy": "fully_shard", "shards": settings.gpus}
        changes.append(("fully_shard over all ranks", whole))
    if settings.sharded and settings.reshard_after_forward is not True:
        changes.append(("reshard_after_forward=True", {"reshard_after_forward": True}))
    if settings.precision == "fp32":
        changes.append(("bf16", {"precision": "bf16"}))
    if settings.batch > 1:
        changes.append(("a batch of 1", {"batch": 1}))
    if settings.strategy == "fully_shard":
        # Fewer shards help if there are more ranks than rows: each is padded to a whole row.
        halves = [settings.gpus >> n for n in range(1, 17) if settings.gpus % 2**n == 0]
        if fewer := first_that_fits([{"strategy": "HSDP", "shards": n} for n in halves]):
            changes.append((f"HSDP over {fewer['shards']:,} ranks", fewer))
        doubled = [settings.gpus << n for n in range(1, 17) if settings.gpus << n <= MOST_GPUS]
        if more := first_that_fits([{"gpus": n, "shards": n} for n in doubled]):
            changes.append((f"{more['gpus']:,} GPUs", more))
    if settings.sharded and not settings.offload:
        changes.append(("CPU offload", {"offload": True}))
    if settings.sequence > SHORTEST:
        halvings = [settings.sequence >> n for n in range(settings.sequence.bit_length())]
        shorter = [{"sequence": n} for n in halvings if n > SHORTEST] + [{"sequence": SHORTEST}]
        shorter_one = first_that_fits(shorter) or shorter[-1]
        changes.append((f"sequences of {shorter_one['sequence']:,} tokens", shorter_one))
    return changes


def fits(shape: DecoderShape, settings: Settings) -> bool:
    """Whether the plan fits, by formula."""
    return estimate(shape, settings).fits


def title(shape: DecoderShape, settings: Settings) -> str:
    """The model and the cluster, in two lines."""
    nodes = "" if settings.gpus == 1 else f", {settings.cluster.inside.name} in a node"
    if settings.gpus > settings.cluster.gpus_per_node:
        nodes += f", {settings.cluster.between.name} between nodes"
    policies = [
        settings.strategy + (f" over {settings.shards}" if settings.strategy == "HSDP" else ""),
        settings.precision,
        *["CPU offload"] * settings.offload,
        *["activation checkpointing"] * settings.checkpoint,
    ]
    plural = "GPU" if settings.gpus == 1 else "GPUs"
    return (
        f"{shape.name}: {in_count(shape.parameters)} parameters, {shape.layers} blocks; "
        f"{', '.join(policies)}\n"
        f"{settings.gpus:,} {plural} ({settings.gpu.name}, {in_gb(settings.memory)}){nodes}; "
        f"{settings.batch} x {settings.sequence:,} tokens on each"
    )
