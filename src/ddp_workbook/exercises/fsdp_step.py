"""Do one training step of a sharded model: you decide when to gather and free its weights.

`blocks` are the parts of the model in the order of forward; each has one weight. Before the step a
rank holds only `block.piece`, its piece of each weight. Every rank has its own rows `x`, equally
many. `loss_grad(output)` returns the gradient of this rank's loss with respect to the output of the
last block, and the loss of the step is the mean of the ranks' losses. The optimizer is plain SGD:
each piece moves by `-lr` times its gradient.

`backward` takes the gradient of the loss with respect to the block's output. It returns two
gradients: first the one with respect to the block's input, then the one with respect to its whole
weight.

| call | what it does |
|---|---|
| `block.gather()` | an all-gather; then `block.weight` is the whole weight |
| `block.free()` | releases the whole weight; then `block.weight` is None again |
| `block.forward(x)` | returns the block's output; needs the whole weight |
| `block.backward(grad)` | returns two gradients; needs the whole weight |
| `block.reduce_scatter(weight_grad)` | returns this rank's piece of the sum over the ranks |

- A rank holds at most one whole weight at any time, and none after the step.
- A rank holds at most one whole gradient of a weight: it goes through `reduce_scatter` before the
  next block's backward.
- Each block runs forward once and backward once.
- With B blocks, a step makes at most 2 B - 1 all-gathers and B reduce-scatters. Only the blocks
  communicate.
- `x` and the list `blocks` stay unchanged.
"""

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.exercises import Look, OnRanks, Seen, When
from ddp_workbook.exercises.judging.same import kind, same

MINUTES = 15
HINTS = [
    "Write forward first: which calls make a block ready, use it, and leave room for the next "
    "one? Then backward: which block comes first there, and what does it need again?",
    "One gradient goes from block to block, from the last to the first. The other one belongs to "
    "the block: once reduced, it is as large as block.piece, and a sum over the ranks.",
    "Gathering every block twice makes 2 B all-gathers. For one block, nothing happens between "
    "its forward and its backward that would need the memory.",
]


def fsdp_step(blocks: list, x: Tensor, loss_grad: Callable[[Tensor], Tensor], lr: float) -> None:
    """Do one step of SGD on all pieces, for this rank's rows `x` [rows, width]."""
    ### BEGIN SOLUTION
    last = blocks[-1]
    for block in blocks:
        block.gather()
        x = block.forward(x)
        if block is not last:  # its backward is next
            block.free()
    grad = loss_grad(x)
    for block in reversed(blocks):
        if block is not last:
            block.gather()
        grad, weight_grad = block.backward(grad)
        block.free()
        block.piece -= lr * block.reduce_scatter(weight_grad) / dist.get_world_size()
    ### END SOLUTION


class Case(NamedTuple):
    """A model of so many blocks, `width` wide, on so many ranks."""

    ranks: int
    blocks: int
    width: int
    lr: float
    rows: int = 5  # of each rank; not 4, which would be the ranks as well


def cases(size: int) -> list[Case]:
    """No weight divides by the ranks; of the smallest one, rank 3 has only padding."""
    return [
        Case(size, 3, 3, 0.375),
        Case(size, 2, 5, 0.25),
        Case(size, 4, 3, 2.0),
        Case(size, 1, 7, 0.125),
    ]


def numbers(first: int, *shape: int) -> Tensor:
    """Fractions between -1 and 1."""
    count = torch.Size(shape).numel()
    return torch.sin(torch.arange(count, dtype=torch.float64) * 1.7 + first).reshape(shape)


def weight_of(case: Case, number: int) -> Tensor:
    """The whole weight of a block before the step."""
    return numbers(number + 1, case.width, case.width)


def rows_of(case: Case, rank: int) -> Tensor:
    """A rank's rows."""
    return numbers(10 * rank + 40, case.rows, case.width)


def loss_grad(output: Tensor) -> Tensor:
    """The gradient of the mean of the squares of (output - 0.3)."""
    return 2 * (output - 0.3) / output.numel()


def cut(tensor: Tensor, ranks: int) -> list[Tensor]:
    """The pieces of all ranks."""
    flat = tensor.flatten()
    return list(torch.cat([flat, flat.new_zeros(-len(flat) % ranks)]).view(ranks, -1))


def forward(x: Tensor, weight: Tensor) -> Tensor:
    """A block's output."""
    return torch.tanh(x @ weight)


def backward(grad: Tensor, x: Tensor, output: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of its input and of its weight."""
    inner = grad * (1 - output**2)
    return inner @ weight.T, x.T @ inner


class Block:
    """The reader's view of a block. Notes each call, and which weights are whole after it."""

    def __init__(self, number: int, case: Case, ledger: "Ledger"):
        self.number, self.case, self._ledger = number, case, ledger
        self.piece = cut(weight_of(case, number), case.ranks)[dist.get_rank()].clone()
        self._weight: Tensor | None = None
        self._saved: tuple[Tensor, Tensor] | None = None

    @property
    def weight(self) -> Tensor | None:
        """The whole weight, while this rank holds it."""
        return self._weight

    def gather(self) -> None:
        """Put the whole weight together."""
        pieces = [torch.empty_like(self.piece) for _ in range(self.case.ranks)]
        dist.all_gather(pieces, self.piece)
        size = self.case.width
        self._weight = torch.cat(pieces)[: size * size].view(size, size).clone()
        self._ledger.made.append((self.number, weakref.ref(self._weight)))
        self._note("gather")

    def free(self) -> None:
        """Release it."""
        self._weight = None
        self._note("free")

    def forward(self, x: Tensor) -> Tensor:
        """The output for these rows."""
        self._saved = (x, forward(x, self._held("forward")))
        self._note("forward")
        return self._saved[1]

    def backward(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of the input and of the weight."""
        weight = self._held("backward")
        if self._saved is None:
            raise RuntimeError(f"backward of block {self.number}: there was no forward before it")
        gradients = backward(grad, *self._saved, weight)
        self._saved = None
        self._note("backward")
        return gradients

    def reduce_scatter(self, weight_grad: Tensor) -> Tensor:
        """This rank's piece of the sum of the ranks' gradients."""
        size = self.case.width
        if not isinstance(weight_grad, Tensor) or weight_grad.shape != (size, size):
            came = tuple(getattr(weight_grad, "shape", [])) or kind(weight_grad)
            raise ValueError(
                f"reduce_scatter of block {self.number}: the gradient of its weight has shape "
                f"{(size, size)}, this is {came}"
            )
        total = torch.empty_like(self.piece)
        dist.reduce_scatter(total, cut(weight_grad, self.case.ranks))
        self._note("reduce_scatter")
        return total

    def _held(self, call: str) -> Tensor:
        if self._weight is None:
            raise RuntimeError(f"{call} of block {self.number}: its weight is not whole here")
        return self._weight

    def _note(self, call: str) -> None:
        self._ledger.notes.append((call, self.number, self._ledger.whole()))


class Ledger:
    """The calls that the blocks of a model got, and which of their weights are whole."""

    def __init__(self) -> None:
        self.made: list[tuple[int, weakref.ref]] = []  # every weight that was ever whole
        self.notes: list[tuple[str, int, list[int]]] = []  # call, block, what is whole after it

    def whole(self) -> list[int]:
        """The blocks whose whole weight is in memory, held by the block or by a variable."""
        return [number for number, reference in self.made if reference() is not None]


def arguments(case: Case, rank: int) -> tuple:
    """The model, the rows of a rank, and the rest."""
    ledger = Ledger()
    blocks = [Block(number, case, ledger) for number in range(case.blocks)]
    return blocks, rows_of(case, rank), loss_grad, case.lr


def watched(function: Callable, blocks: list[Block], *rest: Any) -> dict[str, Any]:
    """Call it; return the pieces afterwards, the calls in order, and what is whole at the end."""
    given = list(blocks)
    function(blocks, *rest)
    ledger = given[0]._ledger
    return {
        "pieces": {f"block {block.number}": block.piece for block in given},
        "notes": ledger.notes,
        "left": ledger.whole(),
    }


def gradients(
    case: Case, rank: int, fed: bool = True, chained: bool = True, of_rows: bool = False
) -> list[Tensor]:
    """A rank's gradient of each weight, in one process.

    Not `fed`: every block gets the rows. Not `chained`: every block gets the loss's gradient.
    `of_rows`: the loss's gradient was taken at the rows, not at the output.
    """
    weights = [weight_of(case, number) for number in range(case.blocks)]
    inputs, outputs = [], []
    x = rows_of(case, rank)
    for weight in weights:
        inputs.append(x)
        outputs.append(forward(x, weight))
        x = outputs[-1] if fed else x
    first = grad = loss_grad(inputs[0] if of_rows else outputs[-1])
    found = []
    for weight, x, output in zip(weights[::-1], inputs[::-1], outputs[::-1], strict=True):
        grad, of_weight = backward(grad if chained else first, x, output, weight)
        found.append(of_weight)
    return found[::-1]


def stepped(
    case: Case, rank: int, factor: float, whose: range | None = None, **how: bool
) -> dict[str, Tensor]:
    """A rank's pieces, if each has moved by -factor * lr times the sum over some ranks."""
    every = [gradients(case, one, **how) for one in whose or range(case.ranks)]
    weights = [weight_of(case, number) for number in range(case.blocks)]
    return {
        f"block {n}": cut(weight - factor * case.lr * sum(own[n] for own in every), case.ranks)[
            rank
        ]
        for n, weight in enumerate(weights)
    }


def all_by_block_0(case: Case, rank: int) -> dict[str, Tensor]:
    """The pieces, if each has moved by the gradient of block 0."""
    moved = right(case, rank)["block 0"] - before(case, rank)["block 0"]
    return {name: piece + moved for name, piece in before(case, rank).items()}


def right(case: Case, rank: int) -> dict[str, Tensor]:
    """The pieces after the step."""
    return stepped(case, rank, 1 / case.ranks)


def before(case: Case, rank: int) -> dict[str, Tensor]:
    """The pieces before it."""
    return stepped(case, rank, 0)


def told(seen: Seen, *calls: str) -> list[int]:
    """The numbers of the blocks that got these calls, in order."""
    return [number for call, number, _ in seen.came["notes"] if call in calls]


def in_order(case: Case) -> tuple[list[int], list[int]]:
    """The blocks of the forwards, and of the backwards."""
    return [*range(case.blocks)], [*reversed(range(case.blocks))]


def own_collectives(seen: Seen) -> list[str]:
    """Collectives that no block has made."""
    names = {"gather": "all_gather", "reduce_scatter": "reduce_scatter"}
    made = Counter(names[call] for call, _, _ in seen.came["notes"] if call in names)
    return sorted(Counter(seen.ops) - made)


def most_whole(seen: Seen) -> int:
    """How many weights were whole at the same time, at most."""
    return max((len(whole) for _, _, whole in seen.came["notes"]), default=0)


def most_gradients(seen: Seen) -> int:
    """How many whole gradients waited for their reduce-scatter at the same time, at most."""
    waiting: set[int] = set()
    most = 0
    reduced = set(told(seen, "reduce_scatter"))
    for call, number, _ in seen.came["notes"]:
        if call == "backward":
            waiting |= {number} & reduced
        if call == "reduce_scatter":
            waiting -= {number}
        most = max(most, len(waiting))
    return most


def too_many(seen: Seen) -> tuple[str, int, list[int]]:
    """The first call after which there was more than one whole weight."""
    return next(note for note in seen.came["notes"] if len(note[2]) > 1)


def all_gathered_first(seen: Seen) -> bool:
    """Whether every block was gathered before the first forward."""
    calls = [call for call, _, _ in seen.came["notes"]]
    return calls[: calls.index("forward")].count("gather") == seen.case.blocks


def kept_by_a_variable(seen: Seen) -> bool:
    """Whether a block was told to free its weight, and the weight is still there."""
    return any(call == "free" and number in whole for call, number, whole in seen.came["notes"])


def never_freed_in(seen: Seen, phase: str) -> bool:
    """Whether no block is freed after its forward, or after its backward."""
    calls = [call for call, _, _ in seen.came["notes"]]
    first = calls.index("backward") if "backward" in calls else len(calls)
    return "free" not in (calls[:first] if phase == "forward" else calls[first:])


def counts(seen: Seen) -> tuple[int, int]:
    """All-gathers and reduce-scatters."""
    return len(told(seen, "gather")), len(told(seen, "reduce_scatter"))


def in_blocks(numbers: list[int]) -> str:
    """ "blocks 0, 1 and 2" """
    if not numbers:
        return "no block"
    *first, last = map(str, numbers)
    return f"blocks {', '.join(first)} and {last}" if first else f"block {last}"


ORDER = Look(
    of=lambda seen: (told(seen, "forward"), told(seen, "backward")),
    right=in_order,
    mistakes={
        "Backward went through the blocks as forward did. From which block does the gradient of "
        "the loss come first?": lambda case: ([*range(case.blocks)], [*range(case.blocks)]),
        "No block ran backward. Which call makes gradients?": (
            lambda case: ([*range(case.blocks)], [])
        ),
        "Forward begins with the last block. Which block takes the rows?": (
            lambda case: (in_order(case)[1], in_order(case)[0])
        ),
    },
    otherwise="Each block runs forward once and backward once. In which order?",
    came=lambda seen: (
        f"forward of {in_blocks(seen.value[0])}; backward of {in_blocks(seen.value[1])}"
    ),
    required=lambda seen: (
        f"forward of {in_blocks(seen.right[0])}; backward of {in_blocks(seen.right[1])}"
    ),
)
OWN_COLLECTIVES = Look(
    of=own_collectives,
    right=[],
    mistakes={
        "An all-reduce sends twice the bytes and leaves the whole gradient on every rank. Which "
        "call of a block leaves just the rank's piece?": When(
            lambda seen: "all_reduce" in seen.value
        ),
    },
    otherwise="The blocks do all of the communication. Which of their calls replaces this one?",
    came="rank {rank} called {value}",
    required="no collectives except those of the blocks",
    words=", ".join,
)
PIECES = Look(
    of=lambda seen: seen.came["pieces"],
    right=right,
    mistakes={
        "The piece moved by the sum of the ranks' gradients. The loss is a mean: by what must the "
        "sum be divided?": lambda case, rank: stepped(case, rank, 1),
        "The gradient was divided by the number of ranks twice. Is the sum a mean already after "
        "the first time?": lambda case, rank: stepped(case, rank, 1 / case.ranks**2),
        "The gradient was divided by the number of rows, too. Of what does loss_grad return the "
        "gradient?": lambda case, rank: stepped(case, rank, 1 / case.ranks / case.rows),
        "The piece moved uphill. Which sign does a step of SGD have?": (
            lambda case, rank: stepped(case, rank, -1 / case.ranks)
        ),
        "The piece moved by the whole gradient. What is lr for?": (
            lambda case, rank: stepped(case, rank, 1 / case.ranks / case.lr)
        ),
        "All pieces are as before. Which line writes into block.piece? A change to the whole "
        "weight is lost when the weight is freed.": before,
        "The piece moved by this rank's own gradient. Where do the other ranks' rows come in?": (
            lambda case, rank: stepped(case, rank, 1, range(rank, rank + 1))
        ),
        "The piece moved by this rank's own gradient, divided by the number of ranks. Where are "
        "the other ranks' gradients added?": (
            lambda case, rank: stepped(case, rank, 1 / case.ranks, range(rank, rank + 1))
        ),
        "Each block got the gradient of the loss. What does a block before the last one get?": (
            lambda case, rank: stepped(case, rank, 1 / case.ranks, chained=False)
        ),
        "Each block got the rows x. What does the second block take?": (
            lambda case, rank: stepped(case, rank, 1 / case.ranks, fed=False)
        ),
        "loss_grad was called with the rows. From what is the loss computed?": (
            lambda case, rank: stepped(case, rank, 1 / case.ranks, of_rows=True)
        ),
        "Every piece moved by the gradient of block 0. Which gradient does your variable hold "
        "after the loop?": all_by_block_0,
        "Some pieces have moved, and this one is as before. Which blocks does your update "
        "reach?": When(
            lambda seen: any(
                same(seen.value[one], was) for one, was in before(seen.case, seen.rank).items()
            )
        ),
    },
    otherwise="Take one block. Which gradient did its reduce_scatter return, and what happened to "
    "it on the way to the piece?",
    came="the piece of {part} is {value} {where}",
    required="{right}",
)
WEIGHTS = Look(
    of=most_whole,
    right=1,
    mistakes={
        "Every block is gathered before the first one is used. How much memory does that save?": (
            When(all_gathered_first)
        ),
        "free was called, and the weight is still in memory. Which variable of yours holds it?": (
            When(kept_by_a_variable)
        ),
        "Nothing was freed. When is a block done with its whole weight, the first time and the "
        "second?": When(lambda seen: not told(seen, "free")),
        "In forward nothing was freed. Which blocks have to wait a long time for their "
        "backward?": When(lambda seen: never_freed_in(seen, "forward")),
        "In backward nothing was freed. Is a block done with its weight after its backward?": (
            When(lambda seen: never_freed_in(seen, "backward"))
        ),
        "A block is gathered while the one before it is still whole. FSDP does that to hide the "
        "communication, and pays for it with memory. Here there is room for one.": When(
            lambda seen: True
        ),
    },
    came=lambda seen: (
        f"after {too_many(seen)[0]} of block {too_many(seen)[1]}, rank {seen.rank} held the whole "
        f"weights of {in_blocks(too_many(seen)[2])}"
        + f"\nat most, {seen.value} whole weights at the same time"
    ),
    required="one whole weight at a time",
    same=lambda came, most: came <= most,
)
GRADIENTS = Look(
    of=most_gradients,
    right=1,
    otherwise="A whole gradient is as large as its weight. What can you do with it before the next "
    "block's backward?",
    came="{value} whole gradients waited for their reduce_scatter at the same time",
    required="one at a time",
    same=lambda came, most: came <= most,
)
LEFT = Look(
    of=lambda seen: seen.came["left"],
    right=[],
    otherwise="What does a rank hold between two steps?",
    came=lambda seen: f"rank {seen.rank} still held the weight of {in_blocks(seen.value)}",
    required="after the step, no whole weight",
)
COUNTS = Look(
    of=counts,
    right=lambda case: (2 * case.blocks - 1, case.blocks),
    mistakes={
        "One all-gather too many. Which block was freed and then gathered again, with nothing in "
        "between that needed the room?": When(lambda seen: counts(seen)[0] == 2 * seen.case.blocks),
        "A gradient was reduced more than once. What does the second time add?": When(
            lambda seen: counts(seen)[1] > seen.case.blocks
        ),
    },
    otherwise="How often does each block need its whole weight, and how often did it get it?",
    came=lambda seen: (
        f"the right step, after {seen.value[0]} all-gathers and {seen.value[1]} reduce-scatters"
    ),
    required=lambda seen: (
        f"at most {seen.right[0]} all-gathers and {seen.right[1]} reduce-scatters, for "
        f"{seen.case.blocks} block{'s' * (seen.case.blocks > 1)}"
    ),
    same=lambda came, most: came[0] <= most[0] and came[1] <= most[1],
)
CHECK = OnRanks(
    cases=cases,
    called=lambda case: (
        f"fsdp_step(blocks, x, loss_grad, lr={case.lr}), with {case.blocks} "
        f"block{'s' * (case.blocks > 1)} of {case.width} x {case.width} weights"
    ),
    given=arguments,
    caller=watched,
    looks=[ORDER, OWN_COLLECTIVES, PIECES, WEIGHTS, GRADIENTS, LEFT, COUNTS],
    keeps="Which line changes it? For example, pop and reverse change a list in place.",
    errors={
        "there was no forward": "Each backward of a block needs a forward of that block before it.",
        "forward of block": "Which call makes its weight whole, and which one takes it away?",
        "backward of block": "Its weight was freed after its forward. What does backward need "
        "again?",
        "the gradient of its weight has shape": "backward returns two gradients. Which one is as "
        "large as the weight?",
        "no setter": "The whole weight is put together from the pieces, and freed again. What "
        "would remain of a change to it?",
        "broadcast shape": "A piece has one dimension. Which gradient has the same length?",
        "must match the size": "A piece has one dimension. Which gradient has the same length?",
        "NoneType": "gather and free return None. Which attribute is the whole weight?",
    },
    proves="models of 1 to 4 blocks at 1 to 4 ranks step as in one process, with one whole weight "
    "at a time, 2 B - 1 all-gathers and B reduce-scatters",
)
