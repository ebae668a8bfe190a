"""Do one training step of a sharded model: you decide when to gather and free its weights.

`blocks` are the parts of the model in the order of forward; each has one weight. Before the step a
rank holds only `block.shard`, its shard of each weight. Every rank has its own rows `x`, equally
many. `loss_grad(output)` returns the gradient of this rank's loss with respect to the output of the
last block, and the loss of the step is the mean of the ranks' losses. The optimizer is plain SGD:
each shard moves by `-lr` times its gradient.

`backward` takes the gradient of the loss with respect to the block's output. It returns two
gradients: first the one with respect to the block's input, then the one with respect to its full
weight.

| call | what it does |
|---|---|
| `block.gather()` | an all-gather; then `block.weight` is the full weight |
| `block.free()` | releases the full weight; then `block.weight` is None again |
| `block.forward(x)` | returns the block's output; needs the full weight |
| `block.backward(grad)` | returns two gradients; needs the full weight |
| `block.reduce_scatter(weight_grad)` | returns this rank's shard of the sum over the ranks |

- A rank holds at most one full weight at any time, and none after the step.
- A rank holds at most one full gradient of a weight: it goes through `reduce_scatter` before the
  next block's backward.
- Each block runs forward once and backward once.
- With B blocks, a step makes at most 2 B - 1 all-gathers and B reduce-scatters. Only the blocks
  communicate.
- `x` and the list `blocks` stay unchanged.
"""

import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.judging import Comparison, DistributedCheck, Observation, Pattern, at_most, edit
from ddp_workbook.judging.equality import kind

MINUTES = 15
HINTS = [
    "Write forward first: which calls make a block ready, use it, and leave room for the next "
    "one? Then backward: which block comes first there, and what does it need again?",
    "One gradient goes from block to block, from the last to the first. The other one belongs to "
    "the block: once reduced, it is as large as block.shard, and a sum over the ranks.",
    "Gathering every block twice makes 2 B all-gathers. For one block, nothing happens between "
    "its forward and its backward that would need the memory.",
]


def fsdp_step(blocks: list, x: Tensor, loss_grad: Callable[[Tensor], Tensor], lr: float) -> None:
    """Do one step of SGD on all shards, for this rank's rows `x` [rows, width]."""
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
        block.shard -= lr * block.reduce_scatter(weight_grad) / dist.get_world_size()
    ### END SOLUTION


class Chain(NamedTuple):
    """A model of so many blocks, `width` wide, on so many ranks."""

    ranks: int
    blocks: int
    width: int
    lr: float

    def numbers(self) -> tuple[list[Tensor], list[Tensor]]:
        """The full weight of each block, and the rows of each rank."""
        generator = torch.Generator().manual_seed(self.blocks)
        draw = partial(torch.randn, generator=generator, dtype=torch.float64)
        weights = [draw(self.width, self.width) for _ in range(self.blocks)]
        return weights, [draw(ROWS, self.width) for _ in range(self.ranks)]


ROWS = 6  # of each rank; no width, and no number of ranks
CASES = [  # of the smallest weight rank 3 has only padding; no weight divides by the ranks
    Chain(0, blocks=3, width=3, lr=0.375),
    Chain(0, blocks=2, width=5, lr=0.25),
    Chain(0, blocks=4, width=3, lr=2.0),
    Chain(0, blocks=1, width=7, lr=0.125),
]


def loss_grad(output: Tensor) -> Tensor:
    """The gradient of the mean of the squares of (output - 0.3)."""
    return 2 * (output - 0.3) / output.numel()


def shards_of(tensor: Tensor, ranks: int) -> list[Tensor]:
    """The shards of all ranks."""
    flat = tensor.flatten()
    return list(torch.cat([flat, flat.new_zeros(-len(flat) % ranks)]).view(ranks, -1))


class Log:
    """The calls that the blocks of a model got, and the weights that are gathered."""

    def __init__(self) -> None:
        self.weight_refs: list[tuple[int, weakref.ref]] = []  # every weight that was ever gathered
        self.calls: list[tuple[str, int, list[int]]] = []  # call, block, what is gathered after it

    def add(self, call: str, block: int) -> None:
        """Note a call."""
        self.calls.append((call, block, self.in_memory()))

    def in_memory(self) -> list[int]:
        """The blocks whose full weight is held, by the block or by a variable."""
        return [block for block, weight in self.weight_refs if weight() is not None]


class Block:
    """The reader's view of a block."""

    def __init__(self, number: int, weight: Tensor, ranks: int, log: Log):
        self._number, self._width, self._ranks, self._log = number, len(weight), ranks, log
        self.shard = shards_of(weight, ranks)[dist.get_rank()].clone()
        self._weight: Tensor | None = None
        self._saved: tuple[Tensor, Tensor] | None = None

    @property
    def weight(self) -> Tensor | None:
        """The full weight, while this rank holds it."""
        return self._weight

    def gather(self) -> None:
        """Gather the full weight."""
        shards = [torch.empty_like(self.shard) for _ in range(self._ranks)]
        dist.all_gather(shards, self.shard)
        row = torch.cat(shards)[: self._width**2]
        self._weight = row.view(self._width, self._width).clone()
        self._log.weight_refs.append((self._number, weakref.ref(self._weight)))
        self._log.add("gather", self._number)

    def free(self) -> None:
        """Release it."""
        self._weight = None
        self._log.add("free", self._number)

    def forward(self, x: Tensor) -> Tensor:
        """The output for these rows."""
        self._saved = (x, torch.tanh(x @ self._require_weight("forward")))
        self._log.add("forward", self._number)
        return self._saved[1]

    def backward(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of the input and of the weight."""
        weight = self._require_weight("backward")
        if self._saved is None:
            raise RuntimeError(f"backward of block {self._number}: there was no forward before it")
        (x, output), self._saved = self._saved, None
        inner = grad * (1 - output**2)
        self._log.add("backward", self._number)
        return inner @ weight.T, x.T @ inner

    def reduce_scatter(self, weight_grad: Tensor) -> Tensor:
        """This rank's shard of the sum of the ranks' gradients."""
        shape = (self._width, self._width)
        if not isinstance(weight_grad, Tensor) or weight_grad.shape != shape:
            actual = tuple(getattr(weight_grad, "shape", [])) or kind(weight_grad)
            raise ValueError(
                f"reduce_scatter of block {self._number}: the gradient of its weight has shape "
                f"{shape}, this is {actual}"
            )
        total = torch.empty_like(self.shard)
        dist.reduce_scatter(total, shards_of(weight_grad, self._ranks))
        self._log.add("reduce_scatter", self._number)
        return total

    def _require_weight(self, call: str) -> Tensor:
        if self._weight is None:
            raise RuntimeError(f"{call} of block {self._number}: its weight is not gathered here")
        return self._weight


def make_args(case: Chain, rank: int) -> tuple:
    """The model, the rows of a rank, and the rest."""
    log, (weights, rows) = Log(), case.numbers()
    blocks = [Block(number, weight, case.ranks, log) for number, weight in enumerate(weights)]
    return blocks, rows[rank], loss_grad, case.lr


def call_and_observe(function: Callable, blocks: list[Block], *rest: Any) -> dict[str, Any]:
    """Call it; return the shards, the calls in order, and what is still gathered at the end."""
    initial_blocks, log = list(blocks), blocks[0]._log
    function(blocks, *rest)
    shards = {f"block {number}": block.shard for number, block in enumerate(initial_blocks)}
    return {
        "shard": shards,
        "calls": log.calls,
        "blocks gathered after the step": log.in_memory(),
    }


def shards_after(case: Chain, rank: int) -> dict[str, Tensor]:
    """After the step, by autograd on the rows of all ranks."""
    weights, rows = case.numbers()
    output = torch.cat(rows)
    for weight in weights:
        output = torch.tanh(output @ weight.requires_grad_())
    (output - 0.3).square().mean().backward()
    updated = [weight.detach() - case.lr * weight.grad for weight in weights]
    return {f"block {n}": shards_of(weight, case.ranks)[rank] for n, weight in enumerate(updated)}


def blocks_of(obs: Observation, name: str) -> list[int]:
    """The blocks that got this call, in order."""
    return [block for call, block, _ in obs.actual["calls"] if call == name]


def own_collectives(obs: Observation) -> list[str]:
    """Collectives that no block has made."""
    gathers, reductions = len(blocks_of(obs, "gather")), len(blocks_of(obs, "reduce_scatter"))
    block_calls = Counter(all_gather=gathers, reduce_scatter=reductions)
    return sorted(Counter(obs.ops) - block_calls)


def max_waiting_gradients(obs: Observation) -> int:
    """How many full gradients waited for their reduce-scatter at the same time, at most."""
    reduced_blocks, waiting, maximum = blocks_of(obs, "reduce_scatter"), 0, 0
    for call, block, _ in obs.actual["calls"]:
        if block in reduced_blocks:
            waiting += {"backward": 1, "reduce_scatter": -1}.get(call, 0)
        maximum = max(maximum, waiting)
    return maximum


REDUCE, SIZE = "block.reduce_scatter(weight_grad)", " / dist.get_world_size()"
UPDATE = f"block.shard -= lr * {REDUCE}{SIZE}"
OWN = (  # a rank's shard of its own gradient
    "torch.nn.functional.pad(weight_grad.flatten(), (0, -weight_grad.numel() % "
    "dist.get_world_size())).chunk(dist.get_world_size())[dist.get_rank()]"
)
CHECK = DistributedCheck(
    cases=CASES,
    call_text="{call}; blocks: {case.blocks}, each with a weight of {case.width} x {case.width}",
    make_args=make_args,
    caller=call_and_observe,
    compare={
        "order": Comparison(
            "Each block runs forward once and backward once. In which order?",
            lambda case: {
                "forward": [*range(case.blocks)],
                "backward": [*reversed(range(case.blocks))],
            },
            lambda obs: {call: blocks_of(obs, call) for call in ("forward", "backward")},
            actual="{part} of blocks {value} {where}",
        ),
        "collectives": Comparison(
            "The blocks do all of the communication. Which of their calls does the work of this "
            "one, or is it not needed?",
            [],
            own_collectives,
            actual="rank {rank} called {value}",
            required="no collectives except those of the blocks",
        ),
        "shard": Comparison(
            "Take one block. Which gradient did its reduce_scatter return, and what happened to it "
            "on the way to the shard?",
            shards_after,
        ),
        "full weights at the same time": at_most(
            "A block is gathered before another one is freed. When is a block done with its "
            "weight, the first time and the second?",
            1,
            lambda obs: max(len(gathered) for *_, gathered in obs.actual["calls"]),
        ),
        "full gradients that wait for their reduce_scatter at the same time": at_most(
            "A full gradient is as large as its weight. What can you do with it before the next "
            "block's backward?",
            1,
            max_waiting_gradients,
        ),
        "blocks gathered after the step": Comparison(
            "What does a rank hold between two steps?", []
        ),
        "all-gathers": at_most(
            "How often does each block need its full weight, and how often did it get it?",
            lambda case: 2 * case.blocks - 1,
            lambda obs: len(blocks_of(obs, "gather")),
        ),
        "reduce-scatters": at_most(
            "A gradient was reduced more than once. What does the second time add?",
            lambda case: case.blocks,
            lambda obs: len(blocks_of(obs, "reduce_scatter")),
        ),
    },
    mistakes={
        "Backward went through the blocks as forward did. From which block does the gradient of "
        "the loss come first?": edit("reversed(blocks)", "blocks"),
        "The shard moved by the sum of the ranks' gradients. The loss is a mean: by what must the "
        "sum be divided?": edit(SIZE, ""),
        "The gradient was divided once too often. What does loss_grad return, and which number "
        "turns the sum of the ranks' gradients into a mean?": [
            edit(SIZE, SIZE + " ** 2"),
            edit(SIZE, SIZE + " / len(x)"),
            edit("= loss_grad(x)", "= loss_grad(x)" + SIZE),
        ],
        "The shard moved uphill. Which sign does a step of SGD have?": edit("-=", "+="),
        "The shard moved by the full gradient. What is lr for?": edit("lr * ", ""),
        "All shards are as before. Which line writes into block.shard? A change to the full "
        "weight is lost when the weight is freed.": edit(UPDATE, REDUCE),
        "The shard moved by this rank's own gradient. Where are the others' added?": [
            edit(REDUCE + SIZE, OWN),
            edit(REDUCE, OWN),
        ],
        "Each block got the gradient of the loss. What does a block before the last one get?": (
            edit("grad, weight_grad =", "_, weight_grad =")
        ),
        "Each block got the rows x. What does the second block take?": edit(
            "x = block", "output = block", "loss_grad(x)", "loss_grad(output)"
        ),
        "Some shards have moved, and this one is as before. Which blocks does your update reach?": [
            edit(
                UPDATE,
                f"total = {REDUCE}\n        block.shard -= (block {which}) * lr * total{SIZE}",
            )
            for which in ("is not last", "is last", "is not blocks[0]", "is blocks[0]")
        ],
        "Every shard moved by the gradient of block 0. Which gradient does your variable hold "
        "after the loop?": edit(
            UPDATE,
            f"total = {REDUCE}\n    for block in blocks:\n        block.shard -= lr * total{SIZE}",
        ),
        "An all-reduce of a gradient as large as a weight sends twice the bytes, and leaves "
        "all of it on every rank. Which call of a block leaves just the rank's shard?": Pattern(
            lambda obs: any(
                row["op"] == "all_reduce" and row["shape"] == (obs.case.width,) * 2
                for row in obs.communication
            ),
            "collectives",
        ),
        "free was called, and the weight is still in memory. Which variable of yours holds "
        "it?": Pattern(
            lambda obs: any(
                call == "free" and block in gathered
                for call, block, gathered in obs.actual["calls"]
            ),
            "full weights at the same time",
        ),
        "A block was freed and then gathered again, with nothing in between that needed the "
        "room. Which block is it?": Pattern(
            lambda obs: any(
                a[:2] == ("free", b[1]) and b[0] == "gather"
                for a, b in pairwise(obs.actual["calls"])
            ),
            "all-gathers",
        ),
    },
    unchanged_hint="Which line changes it? For example, pop and reverse change a list in place.",
    errors={
        "there was no forward": "Each backward of a block needs a forward of that block before it.",
        "forward of block": "Which call gathers its weight, and which one takes it away?",
        "backward of block": "Its weight was freed after its forward. What does backward need "
        "again?",
        "the gradient of its weight has shape": "backward returns two gradients. Which one is as "
        "large as the weight?",
        "no setter": "The full weight is gathered from the shards, and freed again. What "
        "would remain of a change to it?",
        "broadcast shape": "A shard has one dimension. Which gradient has the same length?",
        "must match the size": "A shard has one dimension. Which gradient has the same length?",
        "NoneType": "gather and free return None. Which attribute is the full weight?",
    },
    on_pass="models of 1 to 4 blocks at 1 to 4 ranks step as in one process, with one full weight "
    "at a time, 2 B - 1 all-gathers and B reduce-scatters",
)
