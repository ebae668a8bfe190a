"""`best_splits`: all ways to split N GPUs over the degrees of a plan, and the fastest that fit."""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, product
from typing import Any

import pandas as pd

from manyranks.planning.activations import bytes_in_backward
from manyranks.planning.decoder import DecoderShape
from manyranks.planning.pipeline import INTERLEAVED, ONE_F_ONE_B, SCHEDULES, ZERO_BUBBLE
from manyranks.planning.plan import Plan, busy_seconds, estimate, plan
from manyranks.planning.settings import (
    CHECKPOINTS,
    Settings,
    check,
    count_micro_batches,
    split_of,
    stages_of,
    tensor_of,
)
from manyranks.planning.sizes import (
    PlanRefused,
    format_bytes,
    format_gb,
    format_seconds,
    one_of,
    whole_number,
)
from manyranks.planning.stages import activations_of_rank, blocks_of_rank, different_ranks

MIN_TOKENS = 1024  # of a sequence on each GPU; context degrees that leave fewer are not tried
STATES = 16  # bytes for each parameter: fp32 parameters, gradients, and AdamW's two
DEGREES = ("tensor", "pipeline", "context", "expert")
TRIED = (*DEGREES, "schedule", "stages_per_rank", "checkpoint", "batch")
KEEPS = {False: "no", "selective": "selective", True: "full"}  # activation checkpointing
STAGES_PER_RANK = (1, 2, 4, 8)


@dataclass(frozen=True)
class Splits:
    """The result of `best_splits`: `print` it for a page in words.

    plans
        The fastest plan of each split, the best first; empty if no split fits.
    tried
        How many splits there are of these GPUs, whether they fit or not.
    closest
        If no split fits, the plan of a split that needs least.
    """

    plans: tuple[Plan, ...]
    tried: int
    closest: Plan | None = None

    @property
    def best(self) -> Plan:
        """The fastest plan. Raises PlanRefused if no split fits."""
        if not self.plans:
            raise PlanRefused(self.nothing_fits)
        return self.plans[0]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why each plan loses to the best one; "" for the best."""
        return tuple(reason(one, self.plans[0]) if n else "" for n, one in enumerate(self.plans))

    @property
    def nothing_fits(self) -> str:
        """What is said if no split fits."""
        closest = self.closest
        needs = f" The closest needs {closest.times:.1f} x {memory_of(closest)}." if closest else ""
        return (
            f"None of the {self.tried} splits fits.{needs} Take more GPUs, shorter sequences, or "
            "degrees and a global_batch that allow more splits."
        )

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each plan: degrees, how it trains, bubble, GB, seconds, tokens/s, MFU, why."""
        rows = [
            {
                **degrees(one.settings),
                "schedule": schedule(one.settings),
                "micro-batches": f"{one.settings.accumulate} x {one.settings.batch}",
                "checkpoint": KEEPS[one.settings.checkpoint],
                "bubble": f"{one.bubble:.0%}",
                "GB": round(one.ledger.device / 1e9, 1),
                "step, s": round(one.seconds, 2),
                "tokens/s": round(one.tokens_per_second),
                "MFU": f"{one.mfu:.0%}",
                "why": why or "the best",
            }
            for one, why in zip(self.plans, self.reasons, strict=True)
        ]
        return pd.DataFrame(rows, index=range(1, len(rows) + 1))

    def __str__(self) -> str:
        if not self.plans:
            return self.nothing_fits
        shape, settings = self.best.shape, self.best.settings
        cluster, size = settings.cluster, settings.batch * settings.accumulate * settings.data
        nodes = f" and {cluster.between.name} between nodes"
        lines = [
            f"{shape.name} on {settings.gpus:,} GPUs ({settings.gpu.name}, {memory_of(self.best)}) "
            f"with {cluster.inside.name} in a node"
            f"{nodes if settings.gpus > cluster.gpus_per_node else ''}; a step of {size:,} x "
            f"{settings.sequence:,} tokens; the best of {self.tried} splits:",
        ]
        for number, (one, why) in enumerate(zip(self.plans, self.reasons, strict=True), 1):
            lines += [
                "",
                f"{number}. {describe(one)}",
                f"   {format_seconds(one.seconds)} a step, {one.tokens_per_second:,.0f} tokens/s "
                f"on each GPU, an MFU of {one.mfu:.0%}, {format_bytes(one.ledger.device)}",
                *([f"   {why[0].upper()}{why[1:]}."] if why else []),
            ]
        return "\n".join(lines)


def best_splits(
    parameters: Any = "70B",
    gpus: int = 64,
    memory: str | int | None = None,
    *,
    global_batch: int | None = None,
    most: int = 5,
    **options: Any,
) -> Splits:
    """The `most` fastest splits of these GPUs that fit, each as its fastest plan.

    parameters, gpus, memory, options
        As in `plan`. What is given stays fixed, for example `checkpoint="full"` or `tensor=8`.
        Tried are all values of what is not: tensor, pipeline, context and expert degrees; for each
        schedule, stages a rank, activation checkpointing and the size of a micro-batch.
    global_batch
        Sequences in a step, the same for all splits; by default one for each GPU.

    Tensor groups stay in a node. All splits that `plan` refuses are left out, and context degrees
    that leave a GPU fewer than 1,024 tokens of a sequence. Raises PlanRefused for options that
    make no sense.
    """
    unknown = {"micro_batches", "data", "strategy", "shards"} & set(options)
    if unknown:
        raise PlanRefused(
            f"{', '.join(sorted(unknown))}: not for best_splits. It plans fully_shard, and finds "
            "the groups of data GPUs and the micro-batches from global_batch."
        )
    fixed = {name: options.pop(name) for name in TRIED if name in options}
    most = whole_number(most, "most", most=100)
    base = plan(parameters, gpus, memory, **options)
    shape, settings = base.shape, base.settings
    if "checkpoint" in fixed:
        name = one_of(str(fixed["checkpoint"]), "checkpoint", list(CHECKPOINTS))
        fixed["checkpoint"] = CHECKPOINTS[name]
    if "schedule" in fixed:
        fixed["schedule"] = one_of(fixed["schedule"], "schedule", list(SCHEDULES))
    size = settings.gpus if global_batch is None else global_batch
    every = all_splits(shape, settings, whole_number(size, "global_batch", most=10**9), fixed)
    return fastest(shape, every, most, fixed)


def fastest(
    shape: DecoderShape, every: list[Settings], most: int, fixed: Mapping[str, Any]
) -> Splits:
    """The fastest plan of each split, until no other can be among the first `most`.

    Splits and their variants wait in a heap, ordered by the seconds that they need at least. Only
    those at its top are planned in full.
    """
    order, heap = count(), list[tuple[float, int, Settings, bool]]()
    for split in every:
        seconds = busy_seconds(shape, replace(split, checkpoint=False))
        bound = sum(seconds.values()) - seconds.get("bubble_seconds", 0.0)
        heapq.heappush(heap, (bound, next(order), split, True))
    found: dict[tuple, Plan] = {}
    closest: tuple[float, Settings] | None = None
    while heap:
        bound, _, settings, is_split = heapq.heappop(heap)
        ahead = sorted(one.seconds for one in found.values())[:most]
        if len(ahead) == most and ahead[-1] <= bound:
            break
        if is_split:
            for variant in variants(shape, settings, fixed):
                least = sum(busy_seconds(shape, variant).values())
                heapq.heappush(heap, (least, next(order), variant, False))
            continue
        needs = least_bytes(shape, settings)
        if closest is None or needs < closest[0]:
            closest = needs, settings
        if needs > settings.memory:
            continue
        result, key = estimate(shape, settings), tuple(degrees(settings).values())
        if result.fits and (key not in found or result.seconds < found[key].seconds):
            found[key] = result
    plans = sorted(found.values(), key=lambda one: (one.seconds, one.ledger.device))[:most]
    nearest = estimate(shape, closest[1]) if closest and not plans else None
    return Splits(tuple(plans), len(every), nearest)


def all_splits(
    shape: DecoderShape, settings: Settings, global_batch: int, fixed: Mapping[str, Any]
) -> list[Settings]:
    """Every split that `plan` accepts, with micro-batches of one sequence, or of `fixed`.

    Raises PlanRefused, as for the first one, if none is accepted.
    """
    gpus, sequence, node = settings.gpus, settings.sequence, settings.cluster.gpus_per_node
    number = shape.experts.number if shape.experts else 1
    longest = max(1, sequence // MIN_TOKENS)
    known = {
        "tensor": divisors(gpus, node),
        "pipeline": divisors(gpus, shape.layers + 2),
        "context": divisors(gpus, longest),
        "expert": divisors(number, number),
    }
    tensors, pipelines, contexts, experts = (
        [fixed[name]] if name in fixed else known[name] for name in DEGREES
    )
    batch = whole_number(fixed.get("batch", 1), "batch")
    grid = ((t, p, c, e) for t in tensors for p in pipelines for c in contexts for e in experts)
    every, first_refusal = list[Settings](), None
    for tensor, pipeline, context, expert in grid:
        try:
            tensor = tensor_of(shape, tensor, gpus, node)
            split = split_of(
                shape, gpus, tensor, sequence,
                pipeline=pipeline, context=context, expert=expert, data=None,
            )  # fmt: skip
            groups = gpus // tensor // split["pipeline"]
            candidate = replace(
                settings,
                tensor=tensor,
                batch=batch,
                shards=groups,
                reshard_after_forward=settings.reshard_after_forward
                if split["pipeline"] == 1
                else False,
                accumulate=count_micro_batches(global_batch, batch, groups // split["context"]),
                **split,
            )
            check(candidate)
            every.append(candidate)
        except PlanRefused as refusal:
            first_refusal = first_refusal or refusal
    if first_refusal and not every:
        raise first_refusal
    return every


def divisors(number: int, most: int) -> list[int]:
    """The divisors of a number up to `most`."""
    return [part for part in range(1, min(number, most) + 1) if number % part == 0]


def variants(shape: DecoderShape, split: Settings, fixed: Mapping[str, Any]) -> Iterator[Settings]:
    """The ways to train with a split: schedules, checkpointing, sizes of a micro-batch.

    In a pipeline a micro-batch is one sequence, since more of them make a smaller bubble. GPipe is
    left out: 1F1B is as fast and keeps less.
    """

    def values(name: str, tried: Iterable[Any]) -> list[Any]:
        return [fixed[name]] if name in fixed else list(tried)

    pipelines, sizes = [(ONE_F_ONE_B, 1)], [split.batch]
    if split.pipeline > 1:
        names = values("schedule", [ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE])
        pipelines = list(product(names, values("stages_per_rank", STAGES_PER_RANK)))
    elif "batch" not in fixed:
        sizes = divisors(split.accumulate, 64)
    for name, number in pipelines:
        if split.pipeline > 1 and not can_be(shape, split, name, number):
            continue
        for checkpoint in values("checkpoint", KEEPS):
            for size in sizes:
                yield replace(
                    split,
                    schedule=name,
                    stages_per_rank=number,
                    checkpoint=checkpoint,
                    batch=size,
                    accumulate=split.accumulate * split.batch // size,
                )


def can_be(shape: DecoderShape, split: Settings, schedule: str, stages_per_rank: int) -> bool:
    """Whether the split's pipeline can have this schedule."""
    try:
        stages_of(shape, split.pipeline, schedule, stages_per_rank, split.accumulate)
    except PlanRefused:
        return False
    return True


def least_bytes(shape: DecoderShape, settings: Settings) -> float:
    """Bytes that a GPU needs at least: its part of what is kept, and activations in backward."""
    if settings.pipeline == 1:
        activations = bytes_in_backward(shape, settings.tokens, settings.saving)
    else:
        activations = max(
            max(activations_of_rank(shape, settings, len(blocks), rank).values())
            for rank in different_ranks(shape, settings)
            for blocks in [blocks_of_rank(shape, settings, rank)]
        )
    return STATES * shape.parameters / settings.gpus + activations


# In words


def degrees(settings: Settings) -> dict[str, int]:
    """The degrees of a split by name."""
    return {name: getattr(settings, name) for name in (*DEGREES, "data")}


def memory_of(result: Plan) -> str:
    """The memory of a GPU."""
    return format_gb(result.settings.memory)


def schedule(settings: Settings) -> str:
    """The schedule, with its stages a rank if there are several; "" without a pipeline."""
    if settings.pipeline == 1:
        return ""
    each = settings.stages_per_rank
    return settings.schedule + (f", {each} stages a rank" if each > 1 else "")


def describe(result: Plan) -> str:
    """A split in words: its degrees above 1, and how it trains."""
    settings = result.settings
    words = [f"{name} {number}" for name, number in degrees(settings).items() if number > 1]
    by = f" ({schedule(settings)}, bubble {result.bubble:.0%})" if settings.pipeline > 1 else ""
    plural = "es" if settings.accumulate > 1 else ""
    return (
        f"{' x '.join(words) or 'one GPU'}{by}; {settings.accumulate:,} micro-batch{plural} of "
        f"{settings.batch}, {KEEPS[settings.checkpoint]} activation checkpointing"
    )


def reason(result: Plan, best: Plan) -> str:
    """What costs `result` most of the seconds that it is slower than the best plan."""
    costs = {name: cost(result) - cost(best) for name, cost in COSTS.items()}
    name = max(costs, key=costs.__getitem__)
    slower = result.seconds - best.seconds
    if slower <= 0.0005 * best.seconds:
        more = result.ledger.device - best.ledger.device
        return f"as fast, with {format_bytes(more)} more on each GPU" if more > 0 else "as fast"
    here, there = COSTS[name](result), COSTS[name](best)
    share = slower / best.seconds
    beside = f"{format_seconds(there)} in the best split" if there else "nothing in the best split"
    return (
        f"{share:.{0 if share > 0.01 else 1}%} slower: {WORDS[name](result)} "
        f"{format_seconds(here)}, and {beside}"
    )


COSTS: dict[str, Any] = {
    "tensor": lambda one: one.tensor_seconds,
    "context": lambda one: one.context_seconds,
    "expert": lambda one: one.expert_seconds,
    "bubble": lambda one: one.bubble_seconds,
    "network": lambda one: max(one.bounds.values()) - one.compute_seconds,
    "compute": lambda one: one.compute_seconds,
}
WORDS: dict[str, Any] = {
    "tensor": lambda one: f"tensor parallelism over {one.settings.tensor} costs",
    "context": lambda one: f"context parallelism over {one.settings.context} costs",
    "expert": lambda one: f"expert parallelism over {one.settings.expert} costs",
    "bubble": lambda one: f"its bubble of {one.bubble:.0%} costs",
    "network": lambda one: "its compute waits for fully_shard's calls for",
    "compute": lambda one: (
        "with forward computed again, its compute takes"
        if one.settings.checkpoint is True
        else "its slowest rank computes for"
    ),
}
