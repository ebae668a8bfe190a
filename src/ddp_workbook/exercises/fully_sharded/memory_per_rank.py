"""Compute the bytes that a rank holds in training, for seven ways to share a model.

`root` and `blocks` are the shapes of a model's parameters: `blocks` has a list of shapes for each
block, and `root` has the shapes outside the blocks. Either may be empty. All parameters are
float32, 4 bytes an element, and the optimizer is AdamW. Return a dict with four numbers of bytes,
for the rank that holds the most (you need no process group; do not change the lists):

| key | bytes of |
|---|---|
| `"parameters"`, `"gradients"` | what the rank has of them after backward |
| `"optimizer"` | AdamW's two numbers for each parameter, without its step counters |
| `"gathered"` | the most parameters that are gathered at one moment; 0 without `fully_shard` |

`fully_shard` shards a tensor by rows, its first dimension. If n ranks share it, the fullest rank
holds ceil(rows / n) rows, and the gathered tensor is padded to n times as many. A single rank
(n = 1) goes through the same steps. Only parameters count as gathered: no buffers, and not the
block that is prefetched. `strategy` is one of these:

- `"ddp"`: DDP. Its buckets share their memory with the gradients.
- `"zero_1"`: DDP with ZeroRedundancyOptimizer, which never splits a tensor. It assigns the tensors
  to ranks, the largest first, each to the rank that has the fewest elements so far. A rank has the
  optimizer state of its own tensors.
- `"zero_3"`: `fully_shard` on each block, then on the model, as in this chapter's program. The root
  is gathered from the beginning of forward to the end of backward, a block only while it computes.
- `"blocks_stay_gathered"`: like zero_3 with `reshard_after_forward=False`. A block that is
  gathered in forward stays gathered until its backward is over. Then it is freed, so this is not
  the ZeRO-2 of the paper, which never shards the parameters.
- `"one_unit"`: `fully_shard` on the model only.
- `"hsdp"`: like zero_3, on a mesh of 2 x ranks / 2. Each half of the ranks shards the model over
  its own ranks, and both halves hold the same. `ranks` is even.
- `"bf16"`: like zero_3 with `MixedPrecisionPolicy(torch.bfloat16, torch.float32)`. Gathered
  parameters are bfloat16, 2 bytes an element. Shards, their gradients and AdamW's state stay
  float32.
"""

import random
from itertools import chain
from math import prod
from operator import eq
from typing import NamedTuple

from ddp_workbook.judging import Comparison, Edit, SingleProcessCheck, edit

MINUTES = 25
HINTS = [
    "Begin with a function for a list of shapes: how many elements does the fullest of n ranks "
    "hold? Three of the four numbers follow from it. How large is n under each strategy?",
    "What fully_shard gathers has n shards side by side: n times the number of the first hint. "
    "Which lists of shapes are gathered at the same time? Under two of the strategies, all of "
    "them.",
    "zero_1 needs a list with a load for each rank, and a loop over the numbers of elements, "
    "sorted. Two of the other strategies differ from zero_3 in one number each.",
]


def memory_per_rank(
    root: list[tuple[int, ...]], blocks: list[list[tuple[int, ...]]], ranks: int, strategy: str
) -> dict[str, int]:
    """Return bytes of "parameters", "gradients", "optimizer", "gathered" on the fullest rank."""
    ### BEGIN SOLUTION
    n = {"ddp": 1, "zero_1": 1, "hsdp": ranks // 2}.get(strategy, ranks)

    def shard(shapes: list[tuple[int, ...]]) -> int:
        return sum(-(-rows // n) * prod(rest) for rows, *rest in shapes)

    everything = list(chain(root, *blocks))
    kept = 4 * shard(everything)
    optimizer, gathered = 2 * kept, 0
    if strategy == "zero_1":
        loads = [0] * ranks
        for elements in sorted(map(prod, everything), reverse=True):
            loads[loads.index(min(loads))] += elements
        optimizer = 2 * 4 * max(loads)
    elif strategy in ("blocks_stay_gathered", "one_unit"):
        gathered = n * kept
    elif strategy != "ddp":
        itemsize = 2 if strategy == "bf16" else 4
        gathered = itemsize * n * (shard(root) + max(map(shard, blocks), default=0))
    return {"parameters": kept, "gradients": kept, "optimizer": optimizer, "gathered": gathered}
    ### END SOLUTION


Shapes = list[tuple[int, ...]]


class Model(NamedTuple):
    """The shapes of a model's parameters."""

    root: Shapes
    blocks: list[Shapes]


# Of SEVERAL, another block is the largest once it is padded.
SEVERAL = Model([(10, 6), (5,)], [[(2, 2)], [(5, 4, 3), (7,)], [(9, 8)], [(3, 5)]])
NO_ROOT = Model([], [[(6, 4)], [(5,)]])
NO_BLOCKS = Model([(7, 3)], [])
LARGE_ROOT = Model([(50, 10)], [[(3,)]])
FEW_ROWS = Model([(1, 64)], [[(1,)], [(1,), (2, 3)]])
BLOCK = [*[(64,)] * 4, (192, 64), (64, 64), (64,), (256, 64), (256,), (64, 256), (64,)]
DIGITS = Model([(8, 64), (64, 8), (64,), (64,), (64,), (10, 64), (10,)], [BLOCK] * 3)


STRATEGIES = "ddp", "zero_1", "zero_3", "blocks_stay_gathered", "one_unit", "hsdp", "bf16"


class Measurement(NamedTuple):
    """A call, and the bytes that were measured on the fullest of its ranks."""

    model: Model
    ranks: int
    strategy: str
    parameters: int
    gradients: int
    optimizer: int
    gathered: int


# Measured with torch 2.13 on real ranks; test_memory_per_rank.py measures it again.
CASES = [
    Measurement(SEVERAL, 4, "ddp", 892, 892, 1784, 0),
    Measurement(SEVERAL, 4, "zero_3", 308, 308, 616, 736),
    Measurement(SEVERAL, 4, "blocks_stay_gathered", 308, 308, 616, 1232),
    Measurement(SEVERAL, 4, "one_unit", 308, 308, 616, 1232),
    Measurement(SEVERAL, 4, "bf16", 308, 308, 616, 368),
    Measurement(SEVERAL, 6, "hsdp", 336, 336, 672, 636),
    Measurement(SEVERAL, 3, "zero_1", 892, 892, 608, 0),
    Measurement(SEVERAL, 3, "zero_3", 336, 336, 672, 636),
    Measurement(SEVERAL, 3, "blocks_stay_gathered", 336, 336, 672, 1008),
    Measurement(SEVERAL, 3, "bf16", 336, 336, 672, 318),
    Measurement(SEVERAL, 2, "zero_1", 892, 892, 960, 0),
    Measurement(SEVERAL, 2, "zero_3", 500, 500, 1000, 584),
    Measurement(SEVERAL, 4, "zero_1", 892, 892, 576, 0),
    Measurement(SEVERAL, 4, "hsdp", 500, 500, 1000, 584),
    Measurement(SEVERAL, 2, "hsdp", 892, 892, 1784, 548),
    Measurement(SEVERAL, 1, "zero_3", 892, 892, 1784, 548),
    Measurement(SEVERAL, 1, "zero_1", 892, 892, 1784, 0),
    Measurement(NO_ROOT, 4, "zero_1", 116, 116, 192, 0),
    Measurement(NO_ROOT, 4, "zero_3", 40, 40, 80, 128),
    Measurement(NO_BLOCKS, 3, "zero_3", 36, 36, 72, 108),
    Measurement(NO_BLOCKS, 2, "one_unit", 48, 48, 96, 96),
    Measurement(LARGE_ROOT, 2, "zero_1", 2012, 2012, 4000, 0),
    Measurement(LARGE_ROOT, 4, "zero_3", 524, 524, 1048, 2096),
    Measurement(FEW_ROWS, 4, "zero_3", 276, 276, 552, 1088),
    Measurement(FEW_ROWS, 4, "hsdp", 276, 276, 552, 544),
    Measurement(DIGITS, 4, "zero_1", 604968, 604968, 327680, 0),
    Measurement(DIGITS, 4, "zero_3", 151372, 151372, 302744, 207152),
    Measurement(DIGITS, 4, "hsdp", 302484, 302484, 604968, 206632),
    Measurement(DIGITS, 4, "bf16", 151372, 151372, 302744, 103576),
]


def make_args(case: Measurement) -> tuple:
    """The arguments of a call; its lists are copies, because a reader may change them."""
    root, blocks = case.model
    return [*root], [[*block] for block in blocks], case.ranks, case.strategy


def random_args(rng: random.Random) -> tuple:
    """A small model of any shapes."""

    def shapes(most: int) -> Shapes:
        lengths = [rng.choice([1, 1, 2, 3]) for _ in range(rng.randint(0, most))]
        return [tuple(rng.randint(1, 9) for _ in range(length)) for length in lengths]

    blocks = [shapes(2) for _ in range(rng.randint(0, 3))]
    strategy = rng.choice(STRATEGIES)
    ranks = rng.choice([2, 4, 6] if strategy == "hsdp" else [1, 2, 3, 4, 5])
    return shapes(3) or [(3,)], blocks, ranks, strategy


FULL_BYTES = "4 * sum(map(prod, everything))"
SHARD = "sum(-(-rows // n) * prod(rest) for rows, *rest in shapes)"
LARGEST = "max(map(shard, blocks), default=0)"
ROOT_AND_BLOCK = f"(shard(root) + {LARGEST})"
ORDER, TO = "sorted(map(prod, everything), reverse=True)", "loads.index(min(loads))"
GATHERS_ALL = 'in ("blocks_stay_gathered", "one_unit")'
IN_BF16 = '(2 if strategy == "bf16" else 1)'


def edit_value(key: str, value: str) -> Edit:
    """Another number under this key."""
    name = "kept" if key in ("parameters", "gradients") else key
    return edit(f'"{key}": {name}', f'"{key}": {value}')


def zero_1(state: str) -> Edit:
    """Another number of bytes for the optimizer under zero_1."""
    return edit("2 * 4 * max(loads)", state)


HINTS_BY_KEY = {
    "parameters": "Take one tensor and one rank. How many of the rows does the rank have?",
    "gradients": "Gradients are as large as the parameters that they belong to. Which parameters "
    "does a rank have after backward?",
    "optimizer": "For how many elements does this rank keep two numbers?",
    "gathered": "Draw a line for each unit, from the moment when it is gathered until it is freed. "
    "Where does a vertical line cross the most bytes?",
}
CHECK = SingleProcessCheck(
    cases=CASES,
    make_args=make_args,
    random_args=random_args,
    compare={
        "form": "",
        **{
            key: Comparison(
                hint,
                actual=f'{{value}} bytes as "{key}"',
                required=lambda obs: (  # a random call was not measured
                    f"{obs.expected:,} bytes"
                    + ", measured with torch 2.13" * isinstance(obs.case, Measurement)
                ),
                equal=eq,
            )
            for key, hint in HINTS_BY_KEY.items()
        },
    },
    mistakes={
        "These are elements. How many bytes does an element have?": [
            edit("kept = 4 * ", "kept = "),
            zero_1("max(loads)"),
        ],
        "The remainder of the rows is lost. Which rank holds it?": edit(
            "-(-rows // n)", "rows // n"
        ),
        "This is split by elements or by columns. fully_shard never splits a row: which "
        "dimension are the rows?": [
            edit(SHARD, "sum(-(-prod(shape) // n) for shape in shapes)"),
            edit("rows, *rest in", "*rest, rows in"),
        ],
        "The parameters of the root are missing. Are they sharded as well?": edit(
            "chain(root, ", "chain("
        ),
        "What is gathered is counted separately, under its own key.": edit_value(
            "parameters", "kept + gathered"
        ),
        "The model was divided as a whole. Which tensors have a number of rows that does not "
        "divide?": [
            *(edit(SHARD, f"sum(map(prod, shapes)) {division} n") for division in ("//", "/")),
            edit("4 * shard(everything)", f"{FULL_BYTES} // n"),
        ],
        "What was gathered is freed again. What does a rank keep?": [
            edit_value("parameters", "n * kept"),
            edit_value("parameters", 'n * kept if strategy == "blocks_stay_gathered" else kept'),
            edit_value(
                "parameters",
                'kept if strategy != "blocks_stay_gathered" else '
                "4 * (shard(root) + sum(map(prod, chain(*blocks))))",
            ),
        ],
        "ZeroRedundancyOptimizer shares out the optimizer state. Which ranks have the "
        "parameters?": [edit('"zero_1": 1, ', ""), edit_value("parameters", "optimizer // 2")],
        "Among how many ranks does hsdp shard a tensor?": [
            edit('"hsdp": ranks // 2', '"hsdp": ranks'),
            edit('"hsdp": ranks // 2', '"hsdp": 2'),
        ],
        "These are full gradients. What does the reduce-scatter leave on a rank?": (
            edit_value("gradients", FULL_BYTES)
        ),
        "DDP's buckets were counted as well. Whose memory do they use?": (
            edit_value("gradients", 'kept * (2 if strategy in ("ddp", "zero_1") else 1)')
        ),
        "DDP's all-reduce leaves the full gradients on every rank. What would shard them?": (
            edit_value("gradients", "optimizer // 2")
        ),
        "bfloat16 is for computing. Which dtype have the shards, their gradients and AdamW's "
        "state?": [
            edit("4 * shard(everything)", f"4 // {IN_BF16} * shard(everything)"),
            edit_value("gradients", f"kept // {IN_BF16}"),
            edit_value("optimizer", f"optimizer // {IN_BF16}"),
        ],
        "How many numbers does AdamW keep for each parameter, beside the parameter itself?": [
            edit_value("optimizer", "optimizer // 2"),
            edit_value("optimizer", "optimizer * 3 // 2"),
        ],
        "This is the state of the whole model. Which parameters does a rank's AdamW update?": [
            edit("= 2 * kept", f"= 2 * {FULL_BYTES}"),
            edit_value("optimizer", f"2 * {FULL_BYTES}"),
            zero_1("2 * kept"),
        ],
        "This share would split tensors; ZeroRedundancyOptimizer never does. Which rank has the "
        "state of which tensor?": [
            zero_1("8 * sum(-(-rows // ranks) * prod(rest) for rows, *rest in everything)"),
            zero_1("2 * kept // ranks"),
            zero_1("2 * kept / ranks"),
        ],
        "This is rank 0's state. Which rank has the most?": zero_1("8 * loads[0]"),
        "Were the tensors assigned in turn, in the order of the model, or the smallest first? "
        "Which tensor is next, and to which rank does it go?": [
            edit(ORDER, "map(prod, everything)"),
            edit(", reverse=True", ""),
            edit(
                f"elements in {ORDER}", f"turn, elements in enumerate({ORDER})", TO, "turn % ranks"
            ),
        ],
        "This is the state of the largest tensor. Can the fullest rank have others as well?": (
            zero_1("8 * max(map(prod, everything))")
        ),
        "This is the whole model. What part of it does fully_shard leave on a rank?": edit(
            "4 * shard(everything)", FULL_BYTES
        ),
        "DDP does not gather: its parameters are not sharded. This number is about fully_shard.": (
            edit_value("gathered", "gathered or kept")
        ),
        "While a block computes, the root is gathered as well. Are both in this number?": [
            edit(ROOT_AND_BLOCK, LARGEST),
            edit(ROOT_AND_BLOCK, "max(map(shard, [root, *blocks]))"),
            edit(ROOT_AND_BLOCK, "shard(root)"),
        ],
        "This is the whole model. Which blocks are gathered at the same time?": edit(
            LARGEST, "sum(map(shard, blocks))"
        ),
        "Under blocks_stay_gathered, what is gathered already when the last block is gathered?": [
            edit(GATHERS_ALL, '== "one_unit"'),
            edit("n * kept", 'n * (kept - 4 * shard(root) * (strategy != "one_unit"))'),
        ],
        "Under one_unit, the model is a single unit. What does its only all-gather gather?": [
            edit(GATHERS_ALL, '== "blocks_stay_gathered"'),
            edit("n * kept", 'n * (4 * shard(root) if strategy == "one_unit" else kept)'),
        ],
        "What is gathered includes this rank's own shard, once.": [
            edit_value("gathered", "gathered and gathered + kept"),
            edit_value("gathered", "gathered * (n - 1) // n"),
        ],
        "bfloat16 takes 2 bytes an element, and it is what is gathered.": (
            edit_value("gathered", f"gathered * {IN_BF16}")
        ),
        "These are shards. How large are n of them together?": edit_value(
            "gathered", "gathered // n"
        ),
        "hsdp's all-gather stays within one half of the ranks. How many shards does it join, and "
        "to a multiple of which number are the rows padded?": [
            edit_value("gathered", 'gathered * (2 if strategy == "hsdp" else 1)'),
            edit("        itemsize = ", "        n = ranks\n        itemsize = "),
        ],
        "The padding is missing. How many rows do n shards have together?": edit(
            "gathered = n * kept",
            f"gathered = {FULL_BYTES}",
            "        itemsize = ",
            "        n = 1\n        itemsize = ",
        ),
        "The largest block need not be the largest once it is padded.": edit(
            LARGEST, "shard(max(blocks, key=lambda block: sum(map(prod, block)), default=[]))"
        ),
    },
    unchanged_hint="Which line changes the caller's lists?",
    errors={
        "empty": "A model may have no blocks or no root. What is the largest of none?",
        "to unpack": "A tensor may have one dimension, two or three.",
    },
    on_pass="for seven strategies, every byte that was measured on 1 to 6 ranks",
)
