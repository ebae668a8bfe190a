"""Split the GPUs of three trainings, so that each fits and is fast.

Return the tensor, pipeline, context and data degree of each training. Their product is its number
of GPUs.

| training | `layer` | `batch` | `sequence` |
|---|---|---|---|
| model | Llama 3 405B | Llama 3 70B | Llama 3 8B |
| blocks | 126 | 80 | 32 |
| heads | 128 | 64 | 32 |
| heads of keys and values | 8 | 8 | 8 |
| GPUs | 1,024 A100 | 256 H100 | 64 H100 |
| memory of a GPU | 42.4 GB (sold as 40) | 84.9 GB (sold as 80) | 84.9 GB (sold as 80) |
| GPUs of a node | 4, NVLink 3 | 8, NVLink 4 | 8, NVLink 4 |
| between nodes, for each GPU | 200 Gbit/s | 400 Gbit/s | 400 Gbit/s |
| tokens of a sequence | 4,096 | 8,192 | 1,048,576 |
| sequences of a step | 1,024 | 64 | 4 |

`plan` judges. A split passes if it fits, and if a step takes at most 10 % longer than with the
fastest split that `plan` finds. Each training is fully sharded and computes every block again in
backward (full activation checkpointing). For your degrees `plan` takes the fastest schedule, and
the fastest size of a micro-batch, with which they fit. The number of sequences in a step is fixed,
and a data group needs at least one.

You begin with data parallelism alone.
"""

from typing import Any, NamedTuple

from ddp_workbook.judging import Comparison, Observation, SingleProcessCheck
from ddp_workbook.judging.forms import number

MINUTES = 12
HINTS = [
    "Begin with what is fixed: the sequences of a step. How many GPUs must share one at least?",
    "Then the memory. `plan` shows what a GPU would hold, also where it does not fit: for example "
    '`plan("405B", 1024, gpu="A100 40GB", gpus_per_node=4, link="InfiniBand HDR", sequence=4096)`. '
    "Which part is too large, and which degree divides it?",
    "Last the speed. Context and tensor ranks talk in every layer, and tensor ranks most: keep "
    "their groups in a node. A pipeline idles unless it has many micro-batches. Take these three "
    "degrees as small as memory and batch allow; the rest is data.",
]
DEGREES = ("tensor", "pipeline", "context", "data")
AT_MOST = 0.1  # longer than the fastest split


def which_dimension() -> dict[str, dict[str, int]]:
    """The degrees of each training."""
    ### BEGIN SOLUTION
    return {
        "layer": {"tensor": 4, "pipeline": 1, "context": 1, "data": 256},
        "batch": {"tensor": 2, "pipeline": 1, "context": 2, "data": 64},
        "sequence": {"tensor": 1, "pipeline": 1, "context": 32, "data": 2},
    }
    ### GIVEN
    # return {  # TODO: your degrees
    #     "layer": {"tensor": 1, "pipeline": 1, "context": 1, "data": 1024},
    #     "batch": {"tensor": 1, "pipeline": 1, "context": 1, "data": 256},
    #     "sequence": {"tensor": 1, "pipeline": 1, "context": 1, "data": 64},
    # }
    ### END SOLUTION


class Training(NamedTuple):
    """What `plan` is told, and the seconds of a step with the fastest split that it finds."""

    model: str
    gpus: int
    sequences: int
    options: dict[str, Any]
    fastest: float


NODES_OF_4 = {"gpu": "A100 40GB", "gpus_per_node": 4, "link": "InfiniBand HDR"}
TRAININGS = {
    "layer": Training("405B", 1024, 1024, {"sequence": 4096, **NODES_OF_4}, 89.69),
    "batch": Training("70B", 256, 64, {"sequence": 8192}, 2.721),
    "sequence": Training("8B", 64, 4, {"sequence": 2**20}, 303.4),
}
HINTS_BY_KIND = {
    "unknown": "The degrees are " + ", ".join(DEGREES) + ".",
    "missing": "How many data groups are there? That is a part of the answer.",
    "not whole": "Each training has a dict with four whole numbers.",
    "data": "Each data group needs equally many sequences, and at least one. How many groups can "
    "there be, and what do the other GPUs do?",
    "refused": "This is plan's answer to your degrees. Compare them with the table.",
    "activations": "The largest part is the activations of the tokens that a GPU computes at once. "
    "Which degrees give it fewer tokens, or less of each block?",
    "unsharded": "The largest part is whole blocks with their gradients, gathered while they "
    "compute. More data ranks do not make a block smaller. Which degree does?",
    "stages": "The largest part is gathered blocks: a rank of a pipeline gathers all of its own at "
    "once. How many does it have, and which degree makes each of them smaller?",
    "bubble": "Ranks of the pipeline wait. Would fewer ranks do, with another degree in their "
    "place?",
    "between nodes": "The all-reduces of a tensor group leave the node here. How large is the "
    "largest group that does not?",
    "tensor parallelism": "Of what is added to computing, the all-reduces of the tensor groups are "
    "most. Does memory, or the batch, need groups of this size?",
    "context parallelism": "Of what is added to computing, the exchange of keys and values is "
    "most. Does memory, or the batch, need context groups of this size?",
    "waiting for fully_shard's calls": "The GPUs wait for gathered blocks. How many tokens does a "
    "GPU compute with each of them?",
}


class Fault(NamedTuple):
    """What keeps a split from passing: of HINTS_BY_KIND, and in words."""

    kind: str = ""
    words: str = ""


def fault_of(name: str, split: dict[str, Any]) -> Fault:
    """What `plan` says against these degrees of a training; no words if they pass.

    A degree that is not given is 1, but data must be.
    """
    from manyranks.planning.plan import plan
    from manyranks.planning.search import best_splits, costs
    from manyranks.planning.sizes import PlanRefused, format_bytes, format_gb, format_seconds

    training = TRAININGS[name]
    if unknown := [degree for degree in split if degree not in DEGREES]:
        return Fault("unknown", f"there is no degree {unknown[0]!r}")
    if "data" not in split:
        return Fault("missing", "data is missing")
    for degree, value in split.items():
        if (degree_value := number(value)) is None or degree_value % 1:
            return Fault("not whole", f"{degree} is {value!r}")
    degrees = {"tensor": 1, "pipeline": 1, "context": 1, **split}
    groups = number(split.get("data"))
    if groups and groups > 0 and training.sequences % groups:
        return Fault("data", f"{training.sequences} sequences a step for {groups} data groups")
    options = {**training.options, "checkpoint": "full", "global_batch": training.sequences}
    try:
        first = plan(training.model, training.gpus, **options, **degrees)
        options |= {"expert": 1, **degrees}
        options.pop("data", None)  # follows from the others
        found = best_splits(training.model, training.gpus, most=1, **options).plans
    except PlanRefused as refused:
        return Fault("refused", f"{refused}")
    if not found:
        parts = first.on_gpu
        largest = max(parts, key=parts.__getitem__)
        stages = first.settings.pipeline > 1
        where = f"rank {first.rank} of the pipeline (1F1B)" if stages else "a GPU"
        return Fault(
            "stages" if stages and largest == "unsharded" else largest,
            f"does not fit: {where} would hold {format_bytes(first.ledger.device)} of "
            f"{format_gb(first.settings.memory)}\n"
            + ", ".join(f"{part} {format_bytes(size)}" for part, size in parts.items()),
        )
    (best,) = found
    longer = best.seconds / training.fastest - 1
    if longer <= AT_MOST:
        return Fault()
    seconds = {what: s for what, s in costs(best).items() if s > 0.005 * best.seconds}
    kind = max(seconds, key=lambda what: seconds[what] * (what != "compute"))
    between = best.settings.tensor > best.settings.cluster.gpus_per_node
    words = {"bubble": f"bubble ({best.bubble:.0%})"}
    return Fault(
        "between nodes" if kind == "tensor parallelism" and between else kind,
        f"fits, but a step takes {format_seconds(best.seconds)}, {longer:.1%} longer than the "
        "fastest\n"
        + ", ".join(f"{words.get(what, what)} {format_seconds(s)}" for what, s in seconds.items()),
    )


def judged(name: str) -> Comparison:
    """The comparison of a training's split with what `plan` says."""

    def fault(obs: Observation) -> Fault:
        return fault_of(name, obs.actual[name])

    return Comparison(
        lambda obs: HINTS_BY_KIND[fault(obs).kind],
        "",
        lambda obs: fault(obs).words,
        actual=f"{name}: {{value}}",
        required=f"{name}: a split of its {TRAININGS[name].gpus:,} GPUs that fits, and a step that "
        "takes at most 10 % longer than the fastest",
    )


CHECK = SingleProcessCheck(
    cases=[()],
    compare={
        "form": "Each training has a dict with four whole numbers.",
        **{name: judged(name) for name in TRAININGS},
    },
    on_pass="three splits that fit, each within 10 % of the fastest that `plan` finds",
)
