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

`fully_shard` cuts a tensor by rows, its first dimension. If n ranks share it, the fullest rank
holds ceil(rows / n) rows, and the gathered tensor is padded to n times as many. A single rank
(n = 1) goes through the same steps. Only parameters count as gathered: no buffers, and not the
block that is prefetched. `strategy` is one of these:

- `"ddp"`: DDP. Its buckets share their memory with the gradients.
- `"zero_1"`: DDP with ZeroRedundancyOptimizer, which never cuts a tensor. It assigns the tensors to
  ranks, the largest first, each to the rank that has the fewest elements so far. A rank has the
  optimizer state of its own tensors.
- `"zero_3"`: `fully_shard` on each block, then on the model, as in this chapter's program. The root
  is gathered from the beginning of forward to the end of backward, a block only while it computes.
- `"zero_2"`: like zero_3 with `reshard_after_forward=False`. A block that is gathered in forward
  stays gathered until its backward is over.
- `"whole"`: `fully_shard` on the model only.
- `"hsdp"`: like zero_3, on a mesh of 2 x ranks / 2. Each half of the ranks cuts the model over its
  own ranks, and both halves hold the same. `ranks` is even.
- `"bf16"`: like zero_3 with `MixedPrecisionPolicy(param_dtype=torch.bfloat16)`. Gathered parameters
  are bfloat16, 2 bytes an element. Shards, their gradients and AdamW's state stay float32.
"""

from collections.abc import Callable, Mapping
from itertools import chain, pairwise
from math import ceil, prod
from typing import Any, NamedTuple

from ddp_workbook.exercises import Alone, Look, Seen, When
from ddp_workbook.exercises.judging.same import is_number, kind
from ddp_workbook.exercises.judging.values import in_words

MINUTES = 15
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
    elif strategy in ("zero_2", "whole"):
        gathered = n * kept
    elif strategy != "ddp":
        itemsize = 2 if strategy == "bf16" else 4
        gathered = itemsize * n * (shard(root) + max(map(shard, blocks), default=0))
    return {"parameters": kept, "gradients": kept, "optimizer": optimizer, "gathered": gathered}
    ### END SOLUTION


PARTS = ("parameters", "gradients", "optimizer", "gathered")
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


class Case(NamedTuple):
    """A call, and the bytes that were measured on the fullest of its ranks."""

    model: Model
    ranks: int
    strategy: str
    parameters: int
    gradients: int
    optimizer: int
    gathered: int

    @property
    def n(self) -> int:
        """How many ranks share a tensor."""
        return {"ddp": 1, "zero_1": 1, "hsdp": self.ranks // 2}.get(self.strategy, self.ranks)

    @property
    def tensors(self) -> Shapes:
        """All shapes."""
        return [*self.model.root, *chain(*self.model.blocks)]

    @property
    def whole(self) -> int:
        """Bytes of the whole model."""
        return shard(self.tensors, 1)

    @property
    def units(self) -> list[int]:
        """Bytes of the root and of each block when they are gathered, in float32."""
        units = (self.model.root, *self.model.blocks)
        return [self.n * shard(unit, self.n) for unit in units]


# Measured with torch 2.13 on real ranks; tests/test_memory_per_rank.py measures it again.
CASES = [
    Case(SEVERAL, 4, "ddp", 892, 892, 1784, 0),
    Case(SEVERAL, 4, "zero_3", 308, 308, 616, 736),
    Case(SEVERAL, 4, "zero_2", 308, 308, 616, 1232),
    Case(SEVERAL, 4, "whole", 308, 308, 616, 1232),
    Case(SEVERAL, 4, "bf16", 308, 308, 616, 368),
    Case(SEVERAL, 6, "hsdp", 336, 336, 672, 636),
    Case(SEVERAL, 3, "zero_1", 892, 892, 608, 0),
    Case(SEVERAL, 3, "zero_3", 336, 336, 672, 636),
    Case(SEVERAL, 3, "zero_2", 336, 336, 672, 1008),
    Case(SEVERAL, 3, "bf16", 336, 336, 672, 318),
    Case(SEVERAL, 2, "zero_1", 892, 892, 960, 0),
    Case(SEVERAL, 2, "zero_3", 500, 500, 1000, 584),
    Case(SEVERAL, 4, "zero_1", 892, 892, 576, 0),
    Case(SEVERAL, 4, "hsdp", 500, 500, 1000, 584),
    Case(SEVERAL, 2, "hsdp", 892, 892, 1784, 548),
    Case(SEVERAL, 1, "zero_3", 892, 892, 1784, 548),
    Case(SEVERAL, 1, "zero_1", 892, 892, 1784, 0),
    Case(NO_ROOT, 4, "zero_1", 116, 116, 192, 0),
    Case(NO_ROOT, 4, "zero_3", 40, 40, 80, 128),
    Case(NO_BLOCKS, 3, "zero_3", 36, 36, 72, 108),
    Case(NO_BLOCKS, 2, "whole", 48, 48, 96, 96),
    Case(LARGE_ROOT, 2, "zero_1", 2012, 2012, 4000, 0),
    Case(LARGE_ROOT, 4, "zero_3", 524, 524, 1048, 2096),
    Case(FEW_ROWS, 4, "zero_3", 276, 276, 552, 1088),
    Case(FEW_ROWS, 4, "hsdp", 276, 276, 552, 544),
    Case(DIGITS, 4, "zero_1", 604968, 604968, 327680, 0),
    Case(DIGITS, 4, "zero_3", 151372, 151372, 302744, 207152),
    Case(DIGITS, 4, "hsdp", 302484, 302484, 604968, 206632),
    Case(DIGITS, 4, "bf16", 151372, 151372, 302744, 103576),
]
FULLY_SHARD = "zero_3 zero_2 whole hsdp bf16"
BY_BLOCK = "zero_3 hsdp bf16"


def shard(shapes: Shapes, n: int) -> int:
    """Bytes of float32 on the fullest of n ranks."""
    return 4 * sum(ceil(rows / n) * prod(rest) for rows, *rest in shapes)


def dealt(case: Case, order: Callable[[list[int]], list[int]]) -> list[int]:
    """Bytes of AdamW's state on each rank, if tensors are assigned in this order."""
    loads = [0] * case.ranks
    for elements in order([prod(shape) for shape in case.tensors]):
        loads[loads.index(min(loads))] += 8 * elements
    return loads


def largest_first(sizes: list[int]) -> list[int]:
    """The order of ZeroRedundancyOptimizer."""
    return sorted(sizes, reverse=True)


def largest_neighbours(blocks: list[int]) -> int:
    """A block, and the one that comes next."""
    return max(one + two for one, two in pairwise([*blocks, 0]))


def arguments(case: Case) -> tuple:
    """The arguments of a call; its lists are copies, because a reader may change them."""
    root, blocks = case.model
    return [*root], [[*block] for block in blocks], case.ranks, case.strategy


def root_and_block(case: Case, size: Callable[[list[int]], int] = max) -> int:
    """Bytes of float32 in the gathered root and the block that `size` chooses."""
    root, *blocks = case.units
    return root + (size(blocks) if blocks else 0)


def before_padding(case: Case) -> int:
    """The same with the block that is the largest without padding."""
    sizes = [shard(block, 1) for block in case.model.blocks]
    return root_and_block(case, lambda blocks: blocks[sizes.index(max(sizes))])


def not_padded(case: Case) -> int:
    """Bytes of float32 that are gathered, without padding."""
    root, *blocks = [shard(unit, 1) for unit in (case.model.root, *case.model.blocks)]
    together = sum if case.strategy in ("zero_2", "whole") else max
    return root + together(blocks or [0])


def where(strategies: str, part: str, mistake: Callable[[Case], float]) -> Callable[[Case], float]:
    """This part of the answer, with a mistake under these strategies only."""

    def given(case: Case) -> float:
        return mistake(case) if case.strategy in strategies.split() else getattr(case, part)

    return given


def cut(mistake: Callable[[Case], float]) -> Callable[[Case], float]:
    """A mistake in cutting parameters."""
    return where(FULLY_SHARD, "parameters", mistake)


def zero_1(mistake: Callable[[Case], float]) -> Callable[[Case], float]:
    """A mistake in assigning tensors to ranks."""
    return where("zero_1", "optimizer", mistake)


def gather(strategies: str, mistake: Callable[[Case], float]) -> Callable[[Case], float]:
    """A mistake in what is gathered at the same time, in bytes of float32."""
    return where(
        strategies, "gathered", lambda case: mistake(case) / (2 if case.strategy == "bf16" else 1)
    )


def under(strategy: str) -> When:
    """Holds for this strategy; the cases before it were right."""
    return When(lambda seen: seen.case.strategy == strategy)


def divided(states: int, n: Callable[[Case], int]) -> When:
    """Holds for an equal share of `states` numbers for each parameter, rounded or not."""

    def holds(seen: Seen) -> bool:
        return abs(seen.value - states * seen.case.whole / n(seen.case)) < 8

    return When(holds)


def form(came: Any) -> str:
    """The kind of what came back: the first look, so that the others can rely on it."""
    if not isinstance(came, Mapping):
        return kind(came)
    if set(came) != set(PARTS):
        return "a dict with other keys"
    others = [kind(value) for value in came.values() if not is_number(value)]
    return f"a dict with {others[0]} in it" if others else "a dict of four numbers"


def look(part: str, mistakes: dict[str, Any], otherwise: str) -> Look:
    """One of the four numbers."""
    return Look(
        of=lambda seen: seen.came[part],
        right=lambda case: getattr(case, part),
        mistakes=mistakes,
        otherwise=otherwise,
        came=lambda seen: f'{bytes_of(seen.value)} as "{part}"',
        required=lambda seen: (
            f"{bytes_of(seen.right)}, measured on {seen.case.ranks} "
            f"rank{'s' * (seen.case.ranks > 1)} with torch 2.13"
        ),
        same=lambda came, right: is_number(came) and came == right,
    )


def bytes_of(number: Any) -> str:
    """A number of bytes; a fraction of one shows."""
    return f"{number:,} bytes" if is_number(number) else in_words(number)


FORM = Look(
    of=lambda seen: form(seen.came),
    right="a dict of four numbers",
    mistakes={
        "Does the function return its dict, under every strategy?": "None",
        "Which four keys does the task name?": "a dict with other keys",
    },
    otherwise="Which of your lines makes a dict of plain numbers?",
    came=lambda seen: f"{in_words(seen.came)}, {seen.value}",
    required='a dict with the keys "parameters", "gradients", "optimizer", "gathered"',
)
PARAMETERS = {
    "These are elements. How many bytes does an element have?": lambda case: case.parameters / 4,
    "This is the whole model. What part of it does fully_shard leave on a rank?": (
        lambda case: case.whole
    ),
    "The remainder of the rows is lost. Which rank holds it?": cut(
        lambda case: 4 * sum(rows // case.n * prod(rest) for rows, *rest in case.tensors)
    ),
    "This is cut by elements. fully_shard never cuts through a row.": cut(
        lambda case: 4 * sum(ceil(prod(shape) / case.n) for shape in case.tensors)
    ),
    "This is cut by columns. Which dimension are the rows?": cut(
        lambda case: shard([shape[::-1] for shape in case.tensors], case.n)
    ),
    "The parameters of the root are missing. Are they cut as well?": (
        lambda case: shard([*chain(*case.model.blocks)], case.n)
    ),
    "What is gathered is counted separately, under its own key.": cut(
        lambda case: case.parameters + case.gathered
    ),
    "The model was divided as a whole. Which tensors have a number of rows that does not divide?": (
        divided(1, lambda case: case.n)
    ),
    "What was gathered is freed again. What does a rank keep?": When(
        lambda seen: seen.value == seen.case.n * seen.case.parameters
    ),
    "ZeroRedundancyOptimizer shares out the optimizer state. Which ranks have the parameters?": (
        under("zero_1")
    ),
    "Among how many ranks does hsdp cut a tensor?": under("hsdp"),
    "bfloat16 is for computing. Which dtype do the shards have?": under("bf16"),
}
GRADIENTS = {
    "These are whole gradients. What does the reduce-scatter leave on a rank?": (
        lambda case: case.whole
    ),
    "DDP's buckets were counted as well. Whose memory do they use?": (
        where("ddp zero_1", "gradients", lambda case: 2 * case.gradients)
    ),
    "DDP's all-reduce leaves the whole gradients on every rank. What would cut them?": under(
        "zero_1"
    ),
    "The gradients of the shards have the dtype of the shards. Which one is it?": under("bf16"),
}
OPTIMIZER = {
    "How many numbers does AdamW keep for each parameter?": lambda case: case.optimizer / 2,
    "The parameters were counted too. AdamW keeps two numbers for each of them.": (
        lambda case: case.optimizer * 3 / 2
    ),
    "The step counters do not count.": lambda case: case.optimizer + 4 * len(case.tensors),
    "This is the state of the whole model. Which parameters does a rank's AdamW update?": (
        where(FULLY_SHARD, "optimizer", lambda case: 2 * case.whole)
    ),
    "AdamW's state has the dtype of the shards. Which one is it?": (
        where("bf16", "optimizer", lambda case: case.optimizer / 2)
    ),
    "Here every rank has the whole state. Which rank has the state of which tensor?": (
        zero_1(lambda case: 2 * case.whole)
    ),
    "These are elements. For each one AdamW keeps two numbers, of 4 bytes.": (
        zero_1(lambda case: case.optimizer / 8)
    ),
    "This is cut by rows. ZeroRedundancyOptimizer never cuts a tensor.": (
        zero_1(lambda case: 2 * shard(case.tensors, case.ranks))
    ),
    "This is an equal share of the state, which would cut tensors.": (
        divided(2, lambda case: case.ranks)
    ),
    "This is rank 0's state. Which rank has the most?": (
        zero_1(lambda case: dealt(case, largest_first)[0])
    ),
    "The tensors were assigned in the order of the model. Which one comes first?": (
        zero_1(lambda case: max(dealt(case, list)))
    ),
    "Were the tensors assigned in turn, or the smallest first? Which tensor is next, and to which "
    "rank does it go?": (zero_1(lambda case: max(dealt(case, sorted)))),
    "This is the state of the largest tensor. Can the fullest rank have others as well?": (
        zero_1(lambda case: 8 * max(map(prod, case.tensors)))
    ),
}
GATHERED = {
    "DDP does not gather: its parameters are always whole. This number is about fully_shard.": (
        where("ddp zero_1", "gathered", lambda case: case.whole)
    ),
    "While a block computes, is the root whole as well?": (
        gather(BY_BLOCK, lambda case: max(case.units[1:], default=0))
    ),
    "This is the largest unit, root or block. Which two are whole at the same time?": (
        gather(BY_BLOCK, lambda case: max(case.units))
    ),
    "This is the root. Which block is whole at the same time?": (
        gather(BY_BLOCK, lambda case: case.units[0])
    ),
    "This is the whole model. Which blocks are gathered at the same time?": (
        gather(BY_BLOCK, lambda case: sum(case.units))
    ),
    "With reshard_after_forward=False a block stays gathered. When are most of them gathered?": (
        gather("zero_2", root_and_block)
    ),
    "Under whole, fully_shard knows no blocks. What does its only all-gather gather?": (
        gather("whole", root_and_block)
    ),
    "Under zero_2 the root is gathered as well. Until when?": (
        gather("zero_2", lambda case: sum(case.units[1:]))
    ),
    "Under whole, the model is a single unit. Which blocks are in it?": (
        gather("whole", lambda case: case.units[0])
    ),
    "The gathered tensor has room for this rank's own shard, which was added once more.": (
        where(FULLY_SHARD, "gathered", lambda case: case.gathered + case.parameters)
    ),
    "bfloat16 takes 2 bytes an element, and it is what is gathered.": (
        where("bf16", "gathered", lambda case: 2 * case.gathered)
    ),
    "These are shards. How large are n of them together?": (
        where(FULLY_SHARD, "gathered", lambda case: case.gathered / case.n)
    ),
    "What is gathered includes this rank's own shard.": (
        where(FULLY_SHARD, "gathered", lambda case: case.gathered * (case.n - 1) / case.n)
    ),
    "hsdp's all-gather stays within one half of the ranks. How many shards does it join?": (
        where("hsdp", "gathered", lambda case: case.ranks * case.gathered / case.n)
    ),
    "Under hsdp, the rows are padded to a multiple of which number?": (
        gather("hsdp", lambda case: root_and_block(case._replace(strategy="zero_3")))
    ),
    "The padding is missing. How many rows do n shards have together?": (
        gather(FULLY_SHARD, not_padded)
    ),
    "The largest block need not be the largest once it is padded.": (
        gather(BY_BLOCK, before_padding)
    ),
    "This is the last block. Which one is the largest?": (
        gather(BY_BLOCK, lambda case: root_and_block(case, lambda blocks: blocks[-1]))
    ),
    "The prefetched block does not count.": (
        gather(BY_BLOCK, lambda case: root_and_block(case, largest_neighbours))
    ),
}
WHICH_GRADIENTS = (
    "Gradients are as large as the parameters that they belong to. Which parameters does a rank "
    "have after backward?"
)
LINES = (
    "Draw a line for each unit, from the moment when it is gathered until it is freed. Where does "
    "a vertical line cross the most bytes?"
)
CHECK = Alone(
    cases=CASES,
    given=arguments,
    called=lambda case: "memory_per_rank({}, {}, {}, {!r})".format(
        *map(in_words, arguments(case)[:3]), case.strategy
    ),
    looks=[
        FORM,
        look(
            "parameters",
            PARAMETERS,
            "Take one tensor and one rank. How many of the rows does the rank have?",
        ),
        look("gradients", GRADIENTS, WHICH_GRADIENTS),
        look("optimizer", OPTIMIZER, "For how many elements does this rank keep two numbers?"),
        look("gathered", GATHERED, LINES),
    ],
    keeps="Which line changes the caller's lists?",
    errors={
        "empty": "A model may have no blocks or no root. What is the largest of none?",
        "to unpack": "A tensor may have one dimension, two or three.",
        "by zero": "A model may have no blocks or no root. By what do you divide then?",
        "out of range": "A tensor may have one dimension, and a model may have no blocks.",
    },
    proves="for seven strategies, every byte that was measured on 1 to 6 ranks",
)
