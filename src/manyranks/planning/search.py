"""`best_splits`: all ways to split N GPUs over the degrees of a plan, and the fastest that fit."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

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

MIN_TOKENS = 1024  # of a sequence on each GPU; context degrees that leave fewer are not tried
STATES = 16  # bytes for each parameter: fp32 parameters, gradients, and AdamW's two
DEGREES = ("tensor", "pipeline", "context", "expert")
TRIED = (*DEGREES, "schedule", "stages_per_rank", "checkpoint", "batch")
KEEPS = {False: "no", "selective": "selective", True: "full"}  # activation checkpointing
STAGES_PER_RANK = (1, 2, 4, 8)


@dataclass(frozen=True)
class Splits:
    """The result of `best_splits`; `print` it for a page in words.

    plans
        The fastest plan of each split, the best first; empty if no split fits.
    tried
        How many splits of these GPUs there are, whether they fit or not.
    """

    plans: tuple[Plan, ...]
    tried: int

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why each plan loses to the best one; "" for the best."""
        return tuple(reason(one, self.plans[0]) if n else "" for n, one in enumerate(self.plans))

    def __str__(self) -> str:
        if not self.plans:
            what = (
                f"None of the {self.tried} splits fits"
                if self.tried > 1
                else "The only split does not fit"
            )
            return (
                f"{what}. Take more GPUs, shorter sequences, or a global_batch that allows more "
                "splits."
            )
        best = self.plans[0]
        settings, cluster = best.settings, best.settings.cluster
        nodes = f", {cluster.between.name} between nodes"
        lines = [
            f"{best.shape.name}: the best of {self.tried} splits of {settings.gpus:,} GPUs "
            f"({settings.gpu.name}, {format_gb(settings.memory)}), {cluster.inside.name} in a node"
            f"{nodes if settings.gpus > cluster.gpus_per_node else ''}; a step of "
            f"{settings.global_batch:,} x {settings.sequence:,} tokens",
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
        schedule, stages a rank, the size of a micro-batch, and as little activation checkpointing
        as fits.
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
    if "checkpoint" in fixed:
        name = one_of(str(fixed["checkpoint"]), "checkpoint", list(CHECKPOINTS))
        fixed["checkpoint"] = CHECKPOINTS[name]
    if "schedule" in fixed:
        fixed["schedule"] = one_of(fixed["schedule"], "schedule", list(SCHEDULES))
    base = plan(parameters, gpus, memory, **options)
    shape, size = base.shape, base.settings.gpus if global_batch is None else global_batch
    size = whole_number(size, "global_batch", most=10**9)
    splits = all_splits(shape, base.settings, size, fixed)
    plans = fastest(shape, splits, whole_number(most, "most", most=100), fixed)
    return Splits(tuple(plans), len(splits))


def fastest(
    shape: DecoderShape, splits: list[Settings], most: int, fixed: Mapping[str, Any]
) -> list[Plan]:
    """The fastest plan of each split, until no other can be among the first `most`.

    Splits are planned in the order of the seconds that they need at least: without a bubble, and
    without what `fully_shard` sends.
    """
    bounds = []
    for split in splits:
        seconds = busy_seconds(shape, replace(split, checkpoint=False))
        bounds.append(sum(seconds.values()) - seconds.get("bubble_seconds", 0.0))
    plans: list[Plan] = []
    for bound, split in sorted(zip(bounds, splits, strict=True), key=lambda pair: pair[0]):
        if len(plans) == most and plans[-1].seconds <= bound:
            break
        if found := fastest_of_split(shape, split, fixed):
            plans = sorted([*plans, found], key=lambda one: (one.seconds, one.ledger.device))[:most]
    return plans


def fastest_of_split(shape: DecoderShape, split: Settings, fixed: Mapping[str, Any]) -> Plan | None:
    """The fastest plan of a split that fits; None if there is none."""
    variants = [(sum(busy_seconds(shape, one).values()), one) for one in ways(shape, split, fixed)]
    best: Plan | None = None
    for bound, settings in sorted(variants, key=lambda pair: pair[0]):
        if best and best.seconds <= bound:
            break
        if least_bytes(shape, settings) <= settings.memory:
            result = estimate(shape, settings)
            if result.fits and (best is None or result.seconds < best.seconds):
                best = result
    return best


def all_splits(
    shape: DecoderShape, settings: Settings, global_batch: int, fixed: Mapping[str, Any]
) -> list[Settings]:
    """Every split that `plan` accepts, with micro-batches of one sequence, or of `fixed`.

    Raises PlanRefused, as for the first one, if none is accepted.
    """
    gpus, node = settings.gpus, settings.cluster.gpus_per_node
    number = shape.experts.number if shape.experts else 1
    known = {
        "tensor": divisors(gpus, node),
        "pipeline": divisors(gpus, shape.layers + 2),
        "context": divisors(gpus, max(1, settings.sequence // MIN_TOKENS)),
        "expert": divisors(number, number),
    }
    batch = whole_number(fixed.get("batch", 1), "batch")
    splits, first_refusal = list[Settings](), None
    for values in product(*([fixed[name]] if name in fixed else known[name] for name in DEGREES)):
        degrees = dict(zip(DEGREES, values, strict=True))
        try:
            tensor = tensor_of(shape, degrees.pop("tensor"), gpus, node)
            split = split_of(shape, gpus, tensor, settings.sequence, data=None, **degrees)
            groups = gpus // tensor // split["pipeline"]
            candidate = replace(
                settings,
                tensor=tensor,
                batch=batch,
                shards=groups,
                reshard_after_forward=settings.reshard_after_forward and split["pipeline"] == 1,
                accumulate=count_micro_batches(global_batch, batch, groups // split["context"]),
                **split,
            )
            check(candidate)
            splits.append(candidate)
        except PlanRefused as refusal:
            first_refusal = first_refusal or refusal
    if first_refusal and not splits:
        raise first_refusal
    return splits


def divisors(number: int, most: int) -> list[int]:
    """The divisors of a number up to `most`."""
    return [part for part in range(1, min(number, most) + 1) if number % part == 0]


def ways(shape: DecoderShape, split: Settings, fixed: Mapping[str, Any]) -> Iterator[Settings]:
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
        try:
            if split.pipeline > 1:
                stages_of(shape, split.pipeline, name, number, split.accumulate)
        except PlanRefused:
            continue
        for checkpoint, size in product(values("checkpoint", KEEPS), sizes):
            yield replace(
                split,
                schedule=name,
                stages_per_rank=number,
                checkpoint=checkpoint,
                batch=size,
                accumulate=split.accumulate * split.batch // size,
            )


def least_bytes(shape: DecoderShape, settings: Settings) -> float:
    """Bytes that a GPU needs at least: its part of what is kept, and activations in backward."""
    pipeline = settings.stages
    mean = shape.layers * pipeline.in_flight(pipeline.ranks - 1) // pipeline.total_stages
    alive = replace(shape, layers=mean if settings.pipeline > 1 else shape.layers)
    activations = bytes_in_backward(alive, settings.tokens, settings.saving)
    return STATES * shape.parameters / settings.gpus + activations


# In words


def describe(result: Plan) -> str:
    """A split in words: its degrees above 1, and how it trains."""
    settings = result.settings
    degrees = {name: getattr(settings, name) for name in (*DEGREES, "data")}
    words = [f"{name} {number}" for name, number in degrees.items() if number > 1]
    each = f", {settings.stages_per_rank} stages a rank" if settings.stages_per_rank > 1 else ""
    schedule = f" ({settings.schedule}{each}, bubble {result.bubble:.1%})"
    plural = "es" if settings.accumulate > 1 else ""
    return (
        f"{' x '.join(words) or 'one GPU'}{schedule if settings.pipeline > 1 else ''}; "
        f"{settings.accumulate:,} micro-batch{plural} of {settings.batch}, "
        f"{KEEPS[settings.checkpoint]} activation checkpointing"
    )


def reason(result: Plan, best: Plan) -> str:
    """What costs `result` most of the seconds that it is slower than the best plan."""
    share = result.seconds / best.seconds - 1
    if share < 0.0005:
        return "as fast, within 0.05 %"
    here, there = costs(result), costs(best)
    name = max(here, key=lambda name: here[name] - there[name])
    beside = f"{format_seconds(there[name])} in the best split" if there[name] else "nothing there"
    return (
        f"{share:.{0 if share > 0.01 else 1}%} slower: {name} takes {format_seconds(here[name])}, "
        f"and {beside}"
    )


def costs(result: Plan) -> dict[str, float]:
    """Seconds of a step by what takes them; they add up to it."""
    return {
        "compute": result.compute_seconds,
        "waiting for fully_shard's calls": max(result.bounds.values()) - result.compute_seconds,
        "tensor parallelism": result.tensor_seconds,
        "context parallelism": result.context_seconds,
        "expert parallelism": result.expert_seconds,
        "bubble": result.bubble_seconds,
    }
