"""`plan`: whether a model fits on these GPUs, what a step sends, and what bounds a step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import prod
from typing import Any

import pandas as pd

from manyranks.planning import formulas
from manyranks.planning.activations import block_bytes, bytes_in_backward
from manyranks.planning.activations import bytes_at_loss as saved_at_the_loss
from manyranks.planning.decoder import DecoderShape
from manyranks.planning.formulas import PARTS, MemoryEstimate, Pieces, Policy
from manyranks.planning.hardware import (
    COMPUTE_SHARE,
    GPUS,
    INTER_NODE_LINKS,
    INTRA_NODE_LINKS,
    LINK_SHARE,
    find_by_name,
)
from manyranks.planning.messages import Message, ddp_messages, sum_by_kind, zero_1_messages
from manyranks.planning.models import decoder_shape
from manyranks.planning.pipeline import ONE_F_ONE_B, SCHEDULES
from manyranks.planning.settings import (
    ALIASES,
    CHECKPOINTS,
    MAX_GPUS,
    PRECISIONS,
    STRATEGIES,
    Settings,
    check,
    count_micro_batches,
    default_stages,
    memory_of,
    shards_of,
    split_of,
    stages_of,
    tensor_of,
)
from manyranks.planning.shards import Units
from manyranks.planning.sizes import (
    format_bytes,
    format_count,
    format_gb,
    format_seconds,
    normalize,
    one_of,
    whole_number,
)
from manyranks.planning.speed import Cluster, call_seconds, flops
from manyranks.planning.stages import (
    blocks_of_rank,
    different_ranks,
    estimate_rank,
    exposed_calls,
    operations_of_rank,
    sharded_messages,
    sharded_parts,
    states_of,
)

NOTHING_FITS = (
    "none of the changes that plan tries; best_splits tries pipeline parallelism and other splits"
)
TIGHT_SHARE = 0.9  # of the memory: the rest is for CUDA, NCCL and fragmentation
MIN_SEQUENCE = 512  # tokens; no shorter sequence is proposed


@dataclass(frozen=True)
class Plan:
    """The result of `plan`; `print` it for a page in words.

    ledger
        Bytes on the fullest rank, by part (`formulas.MemoryEstimate`), at the worse of two moments.
        With a pipeline that is rank `rank` of it.
    moment
        That moment: "the loss", when activations peak, or "backward", when most pieces are whole.
        Gradients count in both: FSDP2 makes them in a stream of its own, and the allocator keeps
        the memory that `zero_grad()` frees for that stream.
    whole
        The full-size pieces of `ledger.unsharded`, in bytes, by name.
    messages
        The calls of a step on the same rank (`messages.Message`).
    compute_seconds, network_seconds, tensor_seconds, host_seconds
        Lower bounds of a step: arithmetic at half of the GPU's peak; all calls one after the other,
        apart from those of tensor parallelism, which nothing hides; and CPU offload's copies.
        With a pipeline those of its slowest rank.
    context_seconds, expert_seconds, bubble_seconds
        Like `tensor_seconds`, for the calls of context and expert parallelism; and the time in
        which a rank of a pipeline has nothing to compute.
    """

    shape: DecoderShape
    settings: Settings
    ledger: MemoryEstimate
    moment: str
    whole: Mapping[str, int]
    messages: tuple[Message, ...]
    compute_seconds: float
    network_seconds: float
    tensor_seconds: float = 0.0
    host_seconds: float = 0.0
    context_seconds: float = 0.0
    expert_seconds: float = 0.0
    bubble_seconds: float = 0.0
    rank: int = 0

    @property
    def fits(self) -> bool:
        """Whether the bytes on a GPU are no more than its memory."""
        return self.ledger.device <= self.settings.memory

    @cached_property
    def would_fit(self) -> tuple[str, ...]:
        """Changes that make it fit, in words; empty if it fits as it is."""
        return () if self.fits else ways_to_fit(self.shape, self.settings)

    @property
    def times(self) -> float:
        """The needed memory as a multiple of a GPU's."""
        return self.ledger.device / self.settings.memory

    @property
    def host_memory(self) -> int:
        """Bytes in the host's memory of a node, with CPU offload."""
        return self.ledger.host * min(self.settings.gpus, self.settings.cluster.gpus_per_node)

    @property
    def bounds(self) -> dict[str, float]:
        """Seconds of what runs at the same time, at best."""
        seconds = {"compute": self.compute_seconds, "network": self.network_seconds}
        return seconds | ({"offload": self.host_seconds} if self.host_seconds else {})

    @property
    def bound_by(self) -> str:
        """ "compute", "network" or "offload": which of them takes longest."""
        return max(self.bounds, key=self.bounds.__getitem__)

    @property
    def seconds(self) -> float:
        """A step, if the longest of its bounds hides the others."""
        return max(self.bounds.values()) + sum(self.on_top.values())

    @property
    def on_top(self) -> dict[str, float]:
        """Seconds of what nothing hides, by its cause, without those that are none."""
        parts = {
            "tensor parallelism": self.tensor_seconds,
            "context parallelism": self.context_seconds,
            "expert parallelism": self.expert_seconds,
            "bubble": self.bubble_seconds,
        }
        return {name: seconds for name, seconds in parts.items() if seconds}

    @property
    def bubble(self) -> float:
        """The share of a step's schedule in which a rank of the pipeline has nothing to compute."""
        return self.settings.stages.bubble(recompute=self.settings.checkpoint is True)

    @property
    def in_flight(self) -> int:
        """Of how many micro-batches `rank` keeps activations at most; each of its stages counts."""
        return self.settings.stages.in_flight(self.rank)

    @property
    def block_activations(self) -> int:
        """Bytes that one block saves for a micro-batch; there even if all are computed again."""
        saving = replace(self.settings.saving, checkpoint=False)
        return block_bytes(self.shape, self.settings.tokens, saving)

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second of one GPU."""
        settings = self.settings
        together = settings.tensor * settings.pipeline
        return settings.accumulate * settings.tokens / together / self.seconds

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization: needed operations, nothing computed twice, over the peak."""
        settings = self.settings
        needed = flops(self.shape, 1, settings.sequence) * self.tokens_per_second
        return needed / peak(settings)

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
        return sum_by_kind(self.messages)

    @property
    def verdict(self) -> str:
        """Whether it fits, in a sentence; if not, what would."""
        memory = format_gb(self.settings.memory)
        if self.fits:
            words = f"fits: {format_bytes(self.ledger.device)} of {memory} ({self.times:.0%})"
            barely = "; barely, because CUDA, NCCL and the allocator need some as well"
            return words + (barely if self.times > TIGHT_SHARE else "")
        ways = "; ".join(self.would_fit) or NOTHING_FITS
        return f"does not fit: needs {self.times:.1f} x {memory}; what would: {ways}"

    @property
    def bound(self) -> str:
        """What a step is bound by, in a sentence."""
        parts = [f"{format_seconds(seconds)} of {name}" for name, seconds in self.bounds.items()]
        if not self.messages:
            parts[1] = "nothing is sent"
        parts += [f"{format_seconds(s)} of {name} on top" for name, s in self.on_top.items()]
        return f"bound by {self.bound_by}: {', '.join(parts)}"

    def __str__(self) -> str:
        parts = [f"  {part:<13}{format_bytes(size):>9}" for part, size in self.on_gpu.items()]
        if self.ledger.host:
            node = f"{format_bytes(self.host_memory)} on the host of a node"
            parts.append(
                f"  on the host  {format_bytes(self.ledger.host):>9}, not counted below; {node}"
            )
        calls = [
            f"  {c.calls:>5} {c.op:<15} in {c.when:<14} "
            f"{format_bytes(c.bytes):>8} handed in, {format_bytes(c.received):>8} received"
            for c in self.calls.itertuples()
        ]
        schedule = [describe_pipeline(self), ""] if self.settings.pipeline > 1 else []
        speed = f"At best {self.tokens_per_second:,.0f} tokens/s on each GPU"
        return "\n".join(
            [
                title(self.shape, self.settings),
                "",
                f"Bytes on each GPU at the worst moment, {self.moment}",
                *parts,
                f"  {'together':<13}{format_bytes(self.ledger.device):>9}",
                "",
                "Calls of a step on each GPU",
                *(calls or ["  none"]),
                "",
                *schedule,
                self.verdict[0].upper() + self.verdict[1:] + ".",
                self.bound[0].upper() + self.bound[1:] + ".",
                f"{speed}, an MFU of {self.mfu:.0%}.",
            ]
        )


def plan(
    parameters: Any = "70B",
    gpus: int = 64,
    memory: str | int | None = None,
    *,
    strategy: str = "fully_shard",
    precision: str = "bf16",
    reshard_after_forward: bool | int | None = None,
    offload: bool = False,
    checkpoint: bool | str = True,
    batch: int = 1,
    global_batch: int | None = None,
    sequence: int = 4096,
    shards: int | None = None,
    tensor: int = 1,
    sequence_parallel: bool = True,
    pipeline: int = 1,
    schedule: str = ONE_F_ONE_B,
    stages_per_rank: int | None = None,
    micro_batches: int | None = None,
    context: int = 1,
    expert: int = 1,
    data: int | None = None,
    split_root: bool = False,
    gpu: str = "H100",
    link: str = "InfiniBand NDR",
    inside: str | None = None,
    gpus_per_node: int = 8,
    fields: Mapping[str, Any] | None = None,
) -> Plan:
    """Bytes on each GPU, calls of a step, whether it fits and what it is bound by. No GPU needed.

    parameters, fields
        A size ("70B", 70e9), the name of a published model ("Llama 3 70B", "GPT-3 175B"), a
        DecoderShape, or a config as in a Hugging Face `config.json`: its path, a dict, or an object
        with `to_dict`. `fields` replace or add numbers of a config.
    gpus, memory
        How many, and the memory of each: "80GB" is a card that is sold as such, and means what
        torch finds on it (`hardware.GPUS`); other sizes are taken as they are ("75GB", "70GiB", or
        bytes). By default that of `gpu`.
    strategy
        "fully_shard" (each block and the root), "HSDP", "DDP" or "ZeRO-1" (the
        ZeroRedundancyOptimizer). AdamW with fp32 parameters in all of them.
    precision
        "bf16": MixedPrecisionPolicy(param_dtype=bfloat16, reduce_dtype=float32), for DDP autocast;
        "bf16-reduce": gradients are added up in bfloat16 as well, for DDP with bf16_compress_hook;
        "fp32": everything in fp32, multiplied as TF32. There is no FP8: published trainings in it
        are up to 1.9 times as fast as planned (Llama 3 70B, Megatron Bridge, 2025).
    reshard_after_forward, offload, split_root
        As in `fully_shard` (by default True; False with a pipeline, as in torchtitan);
        CPUOffloadPolicy; embedding and output as units of their own.
    checkpoint
        Activation checkpointing of each block: True, False, or "selective", which keeps the outputs
        of matrix products and attention.
    batch, global_batch, sequence
        Sequences in a micro-batch of each GPU; in a step of all GPUs, in as many micro-batches as
        that takes (default: one); tokens in a sequence.
    shards
        For HSDP: ranks that share one model; by default those of a node.
    tensor, sequence_parallel
        How many GPUs compute each block together, of one node or of whole nodes (which is slow: see
        `tensor_seconds`), and whether they also share what is outside of attention and feed-forward
        layer.
    pipeline, schedule, stages_per_rank
        How many ranks have some of the blocks each; "gpipe", "1f1b", "interleaved" or
        "zero-bubble" (ZB-H1); stages of each rank (by default 2 if interleaved, else 1).
        The formulas and their sources are in `planning.pipeline`.
    micro_batches
        In a step, in place of `global_batch`. By default one; with a pipeline, one for each stage.
    context
        How many GPUs share each sequence.
    expert
        How many GPUs share the experts of a block. They are GPUs that shard the model anyway, so
        this degree needs no further ones: data and context GPUs are a multiple of it.
    data
        How many groups of GPUs compute micro-batches of their own. It follows from the others, and
        is refused if it does not.
    gpu, link, inside, gpus_per_node
        "V100", "A100 40GB", "A100", "L40S", "H100", "H200", "B200", "MI300X", "RTX 4090"; between
        nodes "InfiniBand NDR" or "HDR", "Ethernet 100G", "25G", "10G"; in a node one of
        `hardware.INTRA_NODE_LINKS`, by default the usual one of `gpu`.

    Shards are torch's own arithmetic, and tests compare bytes and calls with real steps. Raises
    PlanRefused (a ValueError) for arguments that make no sense, with a remedy.
    """
    shape = decoder_shape(parameters, fields)
    device = find_by_name(GPUS, one_of(gpu, "gpu", [item.name for item in GPUS]))
    between = find_by_name(
        INTER_NODE_LINKS, one_of(link, "link", [item.name for item in INTER_NODE_LINKS])
    )
    in_node = one_of(inside or device.inside, "inside", [item.name for item in INTRA_NODE_LINKS])
    gpus = whole_number(gpus, "gpus", most=MAX_GPUS)
    gpus_per_node = whole_number(gpus_per_node, "gpus_per_node", most=1024)
    strategy = ALIASES.get(normalize(str(strategy)), strategy)
    strategy = one_of(strategy, "strategy", list(STRATEGIES))
    tensor = tensor_of(shape, tensor, gpus, gpus_per_node)
    batch = whole_number(batch, "batch")
    sequence = whole_number(sequence, "sequence", most=10**9)
    degrees = {"pipeline": pipeline, "context": context, "expert": expert, "data": data}
    split = split_of(shape, gpus, tensor, sequence, **degrees)
    schedule = one_of(schedule, "schedule", list(SCHEDULES))
    pipeline, groups = split["pipeline"], gpus // tensor // split["pipeline"]
    accumulate = count_micro_batches(
        global_batch,
        batch,
        groups // split["context"],
        micro_batches,
        pipeline * default_stages(schedule, stages_per_rank) if pipeline > 1 else 1,
    )
    stages = stages_of(shape, pipeline, schedule, stages_per_rank, accumulate)
    if reshard_after_forward is None:
        reshard_after_forward = pipeline == 1
    checkpoint_name = one_of(str(checkpoint), "checkpoint", list(CHECKPOINTS))
    settings = Settings(
        gpus=gpus,
        memory=memory_of(memory, device),
        strategy=strategy,
        precision=one_of(precision, "precision", list(PRECISIONS)),
        reshard_after_forward=reshard_after_forward,
        offload=offload,
        checkpoint=CHECKPOINTS[checkpoint_name],
        batch=batch,
        sequence=sequence,
        shards=shards_of(strategy, groups, shards, max(1, gpus_per_node // tensor)),
        tensor=tensor,
        sequence_parallel=sequence_parallel,
        split_root=split_root,
        accumulate=accumulate,
        gpu=device,
        cluster=Cluster(find_by_name(INTRA_NODE_LINKS, in_node), between, gpus_per_node),
        stages_per_rank=stages.stages,
        schedule=schedule,
        **split,
    )
    check(settings)
    return estimate(shape, settings)


def estimate(shape: DecoderShape, settings: Settings) -> Plan:
    """The plan for settings that have been checked."""
    if settings.pipeline > 1:
        return estimate_pipeline(shape, settings)
    units, tokens, saving = settings.units(shape), settings.tokens, settings.saving
    pieces: Pieces = {}
    at_loss = 0
    if settings.sharded:
        ledger, messages, pieces, at_loss = estimate_sharded(units, shape, settings)
    else:
        ledger, messages = estimate_replicated(units, shape, settings)
    moments = {
        "backward": replace(ledger, activations=bytes_in_backward(shape, tokens, saving)),
        "the loss": replace(
            ledger, unsharded=at_loss, activations=saved_at_the_loss(shape, tokens, saving)
        ),
    }
    moment = max(moments, key=lambda name: moments[name].device)
    if moment == "the loss":
        pieces = {("gathered", 0): at_loss} if at_loss else {}
    exposed = exposed_calls(shape, settings, range(shape.layers))
    return Plan(
        shape,
        settings,
        moments[moment],
        moment,
        name_pieces(pieces, len(units) if settings.split_root and not shape.tied else 0),
        (*messages, *chain(*exposed.values())),
        network_seconds=total_call_seconds(messages, settings),
        host_seconds=offload_bytes(moments[moment], settings)
        / (LINK_SHARE * find_by_name(INTRA_NODE_LINKS, settings.gpu.host).bytes_per_second),
        **busy_seconds(shape, settings),
    )


def estimate_pipeline(shape: DecoderShape, settings: Settings) -> Plan:
    """The plan of a pipeline: bytes of its fullest rank, seconds of its slowest."""
    different = different_ranks(shape, settings)
    ranks = {rank: estimate_rank(shape, settings, rank) for rank in different}
    fullest = max(ranks, key=lambda rank: ranks[rank].ledger.device)
    here = ranks[fullest]
    exposed = exposed_calls(shape, settings, blocks_of_rank(shape, settings, fullest))
    return Plan(
        shape,
        settings,
        here.ledger,
        here.moment,
        here.whole,
        (*here.messages, *chain(*exposed.values())),
        network_seconds=max(total_call_seconds(r.messages, settings) for r in ranks.values()),
        rank=fullest,
        **busy_seconds(shape, settings),
    )


def busy_seconds(shape: DecoderShape, settings: Settings) -> dict[str, Any]:
    """Seconds of what nothing hides, as arguments of Plan: arithmetic, calls that hold it up, and
    the bubble. With a pipeline, those of its slowest rank."""
    tokens, recompute = settings.tokens, settings.checkpoint is True
    if settings.pipeline == 1:
        operations = flops(shape, tokens, settings.sequence, checkpoint=recompute)
        return rank_seconds(shape, settings, operations, range(shape.layers))
    of_ranks = [
        rank_seconds(
            shape,
            settings,
            operations_of_rank(shape, settings, rank),
            blocks_of_rank(shape, settings, rank),
        )
        for rank in different_ranks(shape, settings)
    ]
    slowest = max(of_ranks, key=lambda seconds: sum(seconds.values()))
    bubble = settings.stages.bubble(recompute=recompute)
    return slowest | {"bubble_seconds": sum(slowest.values()) * bubble / (1 - bubble)}


def rank_seconds(
    shape: DecoderShape, settings: Settings, operations: float, blocks: Sequence[int]
) -> dict[str, Any]:
    """Seconds of `operations` in each micro-batch, and of the calls in these blocks."""
    speed = COMPUTE_SHARE * peak(settings) * settings.tensor
    seconds = {"compute_seconds": settings.accumulate * operations / speed}
    for name, calls in exposed_calls(shape, settings, blocks).items():
        seconds[f"{name}_seconds"] = total_call_seconds(calls, settings)
    return seconds


def peak(settings: Settings) -> float:
    """Operations a second that the GPU's vendor promises."""
    return settings.gpu.flops_fp32 if settings.precision == "fp32" else settings.gpu.flops


def total_call_seconds(messages: list[Message], settings: Settings) -> float:
    """Seconds of these calls, one after the other."""
    return sum(call.times * call_seconds(call, settings.cluster) for call in messages)


def offload_bytes(ledger: MemoryEstimate, settings: Settings) -> int:
    """Bytes between GPU and host in a step with CPU offload: fp32 shards for each all-gather, and
    back their gradients."""
    gathers = 2 if Policy(settings.reshard_after_forward).reshard_to(settings.shards) else 1
    micro_batch = gathers * ledger.parameters + ledger.gradients
    return settings.accumulate * micro_batch if settings.offload else 0


def estimate_sharded(
    units: Units, shape: DecoderShape, settings: Settings
) -> tuple[MemoryEstimate, list[Message], Pieces, int]:
    """Ledger and calls of `fully_shard`, its full-size pieces at most, and bytes at the loss."""
    policy, shards = settings.policy(shape), settings.shards
    before, after = shape.ends(settings.split_root)
    parts = sharded_parts(shape, settings, before, range(shape.layers), after)
    messages = sharded_messages(parts, policy, settings)
    messages = [call._replace(times=settings.accumulate) for call in messages]
    pieces = formulas.unsharded(units, shards, policy)
    ledger = replace(states_of(parts, policy, settings.offload), unsharded=sum(pieces.values()))
    return ledger, messages, pieces, formulas.unsharded_at_loss(units, shards, policy)


def estimate_replicated(
    units: Units, shape: DecoderShape, settings: Settings
) -> tuple[MemoryEstimate, list[Message]]:
    """Ledger and calls of DDP and ZeRO-1, with autocast for bf16.

    They send once a step: all micro-batches but the last run under `no_sync`.
    """
    ranks, last = settings.gpus, shape.first + shape.tied
    options: dict[str, Any] = {"hook_dtype": settings.reduce_dtype, "root_first": last}
    if settings.strategy == "ZeRO-1":
        ledger = formulas.zero_1(units, ranks)
        messages = zero_1_messages(units, ranks, **options)
    else:
        ledger = formulas.ddp(units) if ranks > 1 else formulas.one_process(units)
        messages = ddp_messages(units, ranks, **options)
    copies = 0 if settings.precision == "fp32" else autocast_copies(shape)
    return replace(ledger, copies=copies), messages


def autocast_copies(shape: DecoderShape) -> int:
    """Bytes of the bf16 copies of weights that autocast keeps from forward to backward."""
    weights = [s for block in shape.blocks for s in block if len(s) > 1]
    return 2 * (sum(map(prod, weights)) + shape.vocabulary * shape.width)


def name_pieces(pieces: Pieces, units: int) -> dict[str, int]:
    """Pieces with their names: "block 3, gathered" and so on; `units` if the root is split."""
    shift = 1 if units else 0
    names = {0: "the root", None: "earlier blocks"}
    if units:
        names |= {1: "the embedding", units - 1: "the output"}
    return {
        f"{names.get(unit, f'block {(unit or 0) - shift}')}, {kind}": size
        for (kind, unit), size in pieces.items()
        if size
    }


Change = tuple[str, dict[str, Any]]  # in words, and as settings


def ways_to_fit(shape: DecoderShape, settings: Settings) -> tuple[str, ...]:
    """Changes after which the plan fits: each alone; if none is enough, the first few together."""
    changes = list(possible_changes(shape, settings))
    alone = [words for words, change in changes if fits(shape, replace(settings, **change))]
    if alone:
        return tuple(alone)
    together, words = settings, list[str]()
    while changes:
        word, change = changes[0]
        together, words = replace(together, **change), [*words, word]
        if fits(shape, together):
            return (", ".join(words),)
        changes = list(possible_changes(shape, together))
    return ()


def possible_changes(shape: DecoderShape, settings: Settings) -> Iterator[Change]:
    """Possible changes, the cheapest first."""

    def first_that_fits(changes: list[dict[str, Any]]) -> dict[str, Any] | None:
        return next((c for c in changes if fits(shape, replace(settings, **c))), None)

    if not settings.checkpoint:
        yield "selective checkpointing", {"checkpoint": "selective"}
    if settings.checkpoint is not True:
        yield "activation checkpointing", {"checkpoint": True}
    if settings.strategy != "fully_shard":
        ranks = settings.gpus // settings.tensor // settings.pipeline
        yield "fully_shard over all ranks", {"strategy": "fully_shard", "shards": ranks}
    alone = settings.pipeline == settings.context == settings.expert == 1
    if settings.sharded and settings.reshard_after_forward is not True and settings.pipeline == 1:
        yield "reshard_after_forward=True", {"reshard_after_forward": True}
    if settings.sharded and not settings.split_root and not shape.tied:
        yield "embedding and output as units (split_root)", {"split_root": True}
    if settings.precision == "fp32":
        yield "bf16", {"precision": "bf16"}
    if settings.batch > 1:
        parts = settings.accumulate * settings.batch if settings.accumulate > 1 else 1
        yield "a batch of 1", {"batch": 1, "accumulate": parts}
    if settings.strategy == "fully_shard":
        # Fewer shards help if there are more ranks than rows: each is padded to a whole row.
        gpus, tensor = settings.gpus, settings.tensor
        halves = [settings.shards >> n for n in range(1, 18) if settings.shards % 2**n == 0]
        together = tensor * settings.pipeline
        halves = [n for n in halves if n % settings.context == n % settings.expert == 0]
        if fewer := first_that_fits([{"strategy": "HSDP", "shards": n} for n in halves]):
            yield f"HSDP over {fewer['shards']:,} ranks", fewer
        doubled = [gpus << n for n in range(1, 18) if gpus << n <= MAX_GPUS]
        if more := first_that_fits([{"gpus": n, "shards": n // together} for n in doubled]):
            yield f"{more['gpus']:,} GPUs", more
    node = min(settings.cluster.gpus_per_node, settings.gpus)
    divides = not shape.kv_heads % node and not settings.shards % node
    if settings.sharded and settings.tensor == 1 and node > 1 and divides and alone:
        cut = {"tensor": node, "shards": settings.shards // node}
        yield f"tensor parallelism over {node}", cut
    if settings.sharded and not settings.offload and settings.pipeline == 1:
        yield "CPU offload", {"offload": True}
    if settings.sequence > MIN_SEQUENCE:
        halvings = [settings.sequence >> n for n in range(settings.sequence.bit_length())]
        shorter = [{"sequence": n} for n in halvings if n > MIN_SEQUENCE] + [
            {"sequence": MIN_SEQUENCE}
        ]
        shorter = [change for change in shorter if not change["sequence"] % (2 * settings.context)]
        change = first_that_fits(shorter) or shorter[-1]
        yield f"sequences of {change['sequence']:,} tokens", change


def fits(shape: DecoderShape, settings: Settings) -> bool:
    """Whether the plan fits."""
    return estimate(shape, settings).fits


def title(shape: DecoderShape, settings: Settings) -> str:
    """The model and the cluster, in two lines."""
    nodes = "" if settings.gpus == 1 else f", {settings.cluster.inside.name} in a node"
    if settings.gpus > settings.cluster.gpus_per_node:
        nodes += f", {settings.cluster.between.name} between nodes"
    checkpoint = {True: "activation checkpointing", "selective": "selective checkpointing"}
    policies = [
        settings.strategy + (f" over {settings.shards}" if settings.strategy == "HSDP" else ""),
        settings.precision,
    ]
    if settings.tensor > 1:
        spread = settings.tensor // settings.cluster.gpus_per_node
        across = f" (across {spread} nodes)" if spread > 1 else ""
        policies.append(f"tensor parallelism over {settings.tensor}{across}")
    if settings.pipeline > 1:
        each = settings.stages_per_rank
        stages = f" ({each} stages each)" if each > 1 else ""
        policies.append(f"pipeline of {settings.pipeline}{stages}, {settings.schedule}")
    if settings.context > 1:
        policies.append(f"context parallelism over {settings.context}")
    if settings.expert > 1:
        policies.append(f"expert parallelism over {settings.expert}")
    if settings.offload:
        policies.append("CPU offload")
    if settings.checkpoint:
        policies.append(checkpoint[settings.checkpoint])
    active = f" ({format_count(shape.active)} active)" if shape.experts else ""
    micro = f"{settings.accumulate} x " if settings.accumulate > 1 else ""
    together = settings.tensor * settings.pipeline * settings.context
    where = "on each" if together == 1 else f"on each {together}"
    plural = "GPU" if settings.gpus == 1 else "GPUs"
    return (
        f"{shape.name}: {format_count(shape.parameters)} parameters{active}, {shape.layers} "
        f"blocks; {', '.join(policies)}\n"
        f"{settings.gpus:,} {plural} ({settings.gpu.name}, {format_gb(settings.memory)}){nodes}; "
        f"{micro}{settings.batch} x {settings.sequence:,} tokens {where}"
    )


def describe_pipeline(result: Plan) -> str:
    """The pipeline in words: how full it is, and what its fullest rank keeps."""
    settings, stages = result.settings, result.settings.stages
    each = f" with {stages.stages} stages each" if stages.stages > 1 else ""
    few = ", fewer than its ranks: it is never full" if stages.micro_batches < stages.ranks else ""
    few += " (torch's Schedule1F1B refuses that)" if few and stages.schedule == ONE_F_ONE_B else ""
    return (
        f"Pipeline of {stages.ranks} ranks{each}, {settings.schedule}: bubble {result.bubble:.1%} "
        f"with {stages.micro_batches} micro-batches{few}.\n"
        f"Bytes and calls are those of its rank {result.rank}, the fullest. At most it keeps the "
        f"activations of {result.in_flight} micro-batches{' x stages' if each else ''}."
    )
