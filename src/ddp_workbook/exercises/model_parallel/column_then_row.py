"""Cut the MLP of a Llama block over the ranks, by columns and then by rows.

One process would compute `(F.silu(x @ gate) * (x @ up + up_bias)) @ down + down_bias`. All ranks
call your function with the same x, weights and biases, each of them whole. Compute the same y
together, so that `y.backward(gradient)`, which all ranks then call with the same gradient, is
right too.

- Rank r computes the r-th of as many equal blocks of consecutive hidden units as there are ranks:
  some columns of gate and up, and the rows of down that belong to them. The number of hidden units
  can be divided by the number of ranks.
- Every rank returns the whole y. After backward, x and down_bias have the gradients of one process.
- gate, up, up_bias and down have them in the rank's own block, and zeros in the rest, as a slice
  leaves them.
- Each rank makes one all-reduce forward, of the size of y, and one backward, of the size of x.
  Nothing else is sent.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from ddp_workbook.judging import Comparison, DistributedCheck, Pattern, edit
from ddp_workbook.judging.comm_comparisons import ONLY_ALL_REDUCE

MINUTES = 12
HINTS = [
    "Begin with forward. Which columns and rows are this rank's, and what must be added up over "
    "the ranks? A bias that is added before that sum is in it once for each rank.",
    "Backward, each rank finds only what its own hidden units contribute to the gradient of x. And "
    "what reaches the sum of forward is already the whole gradient, on every rank.",
    "Two classes like the page's CopyToRanks and AddUpRanks may stand inside your function. x is "
    "used twice: what is all-reduced backward if both products take the same copy of it?",
]


def column_then_row(
    x: Tensor, gate: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor
) -> Tensor:
    """y [..., out] of x [..., width]; gate and up are [width, hidden], down is [hidden, out]."""
    ### BEGIN SOLUTION

    class CopyToRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor) -> Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient: Tensor) -> Tensor:
            gradient = gradient.clone()
            dist.all_reduce(gradient)  # each rank has what went through its own hidden units
            return gradient

    class AddUpRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, part: Tensor) -> Tensor:
            part = part.clone()
            dist.all_reduce(part)
            return part

        @staticmethod
        def backward(ctx, gradient: Tensor) -> Tensor:
            return gradient  # of y, which every rank has whole: it is that of each summand

    hidden = len(down) // dist.get_world_size()
    own = slice(dist.get_rank() * hidden, (dist.get_rank() + 1) * hidden)
    copy = CopyToRanks.apply(x)  # once: both products send their gradients through it
    units = F.silu(copy @ gate[:, own]) * (copy @ up[:, own] + up_bias[own])
    return AddUpRanks.apply(units @ down[own]) + down_bias  # once, after the sum
    ### END SOLUTION


class MLP(NamedTuple):
    """A call: its number, the shape of x, hidden units of a rank, outputs, and the dtype."""

    number: int
    shape: tuple[int, ...]
    units: int
    outputs: int
    dtype: torch.dtype
    ranks: int = 4


CASES = [
    MLP(0, (5, 3), 2, 4, torch.float32),
    MLP(1, (2, 3, 5), 1, 5, torch.float64),
    MLP(2, (7,), 3, 2, torch.float32),
    MLP(3, (4, 1), 5, 1, torch.float32),
]
NAMES = ("x", "gate", "up", "up_bias", "down", "down_bias")
UNITS_DIMENSION = {"gate": 1, "up": 1, "up_bias": 0, "down": 0}  # in which a rank has a block


def make_args(case: MLP) -> tuple[Tensor, ...]:
    """x, weights and biases, the same on every rank."""
    random = torch.Generator().manual_seed(case.number)
    width, hidden = case.shape[-1], case.units * case.ranks
    shapes = [case.shape, (width, hidden), (width, hidden), (hidden,), (hidden, case.outputs)]
    return tuple(
        torch.randn(shape, generator=random, dtype=case.dtype).requires_grad_()
        for shape in [*shapes, (case.outputs,)]
    )


def forward_and_backward(function: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
    """What the function returns, after its backward where it has one."""
    y = function(*arguments)
    if isinstance(y, Tensor) and y.requires_grad:
        y.backward(torch.linspace(-1, 2, y.numel(), dtype=y.dtype).reshape(y.shape))
    return y


def one_process(
    x: Tensor, gate: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor
) -> Tensor:
    """The MLP on whole weights."""
    return (F.silu(x @ gate) * (x @ up + up_bias)) @ down + down_bias


def observe(y: Any, *arguments: Tensor) -> dict[str, Any]:
    """The result, and each argument's gradient."""
    gradients = {f"gradient of {n}": a.grad for n, a in zip(NAMES, arguments, strict=True)}
    return {"y": y} | gradients


def expected(part: str) -> Callable[[MLP, int], Tensor]:
    """What one process gives for this part, with zeros outside of the rank's block."""

    def on_rank(case: MLP, rank: int) -> Tensor:
        arguments = make_args(case)
        whole = observe(forward_and_backward(one_process, *arguments), *arguments)[part].detach()
        dimension = UNITS_DIMENSION.get(part.removeprefix("gradient of "))
        if dimension is None:
            return whole
        zeros = torch.zeros_like(whole)
        place = (dimension, rank * case.units, case.units)
        zeros.narrow(*place).copy_(whole.narrow(*place))
        return zeros

    return on_rank


def expected_bytes(case: MLP) -> int:
    """Those of y and x together."""
    rows = torch.Size(case.shape[:-1]).numel()
    return rows * (case.shape[-1] + case.outputs) * case.dtype.itemsize


def foreign_units(obs: Any) -> bool:
    """Whether there is a gradient in the blocks of other ranks."""
    is_tensor = isinstance(obs.value, Tensor) and obs.value.shape == obs.expected.shape
    cut = any(f"gradient of {name}" in obs.actual for name in UNITS_DIMENSION)
    return cut and is_tensor and bool(obs.value[obs.expected == 0].any())


HINTS_BY_PART = {
    "y": "At one rank nothing is cut: is y right there? Then write down which hidden units a rank "
    "computes, and what it adds to the sum.",
    "gradient of x": "Which part of this gradient has each rank, and who adds the parts up?",
    "gradient of down_bias": "On which ranks is down_bias added, how often, and before the sum or "
    "after it?",
    **dict.fromkeys(
        (f"gradient of {name}" for name in UNITS_DIMENSION),
        "Go back from y: which gradient arrives at this rank's summand, and what is done to it on "
        "the way?",
    ),
}
COPY = (
    "            dist.all_reduce(gradient)  # each rank has what went through its own hidden units"
)
OWN = "slice(dist.get_rank() * hidden, (dist.get_rank() + 1) * hidden)"
ADD = "            dist.all_reduce(part)\n"
PASS_ON = (
    "            return gradient  # of y, which every rank has whole: it is that of each summand"
)
RESULT = "AddUpRanks.apply(units @ down[own]) + down_bias  # once, after the sum"
SHAPES = "Print the shapes. Which columns of gate and up, and which rows of down, are this rank's?"
CHECK = DistributedCheck(
    cases=CASES,
    call_text=lambda case: (
        "column_then_row(x, gate, up, up_bias, down, down_bias), then backward of y, with x of "
        f"shape {list(case.shape)} in {str(case.dtype)[6:]}, {case.units * case.ranks} hidden "
        f"units and {case.outputs} outputs"
    ),
    make_args=make_args,
    caller=forward_and_backward,
    observe=observe,
    compare={
        **{part: Comparison(hint, expected(part)) for part, hint in HINTS_BY_PART.items()},
        "operations": ONLY_ALL_REDUCE,
        "bytes": Comparison(
            "Which tensors must be added up over the ranks, and how large are they?",
            expected_bytes,
            # One rank has all of them without sending anything.
            lambda obs: (
                sum(r["bytes"] for r in obs.communication if obs.size > 1)
                or expected_bytes(obs.case)
            ),
            actual="the right y and gradients, but rank {rank} sent {value} bytes",
            required="{expected} bytes: one all-reduce of the size of y, and one of the size of x",
        ),
    },
    mistakes={
        "This is the summand of rank {rank}'s own hidden units. Who adds up?": edit(ADD, ""),
        "The summands of the ranks are averaged. What does the product with all of down do?": edit(
            "dist.all_reduce(part)", "dist.all_reduce(part.div_(dist.get_world_size()))"
        ),
        "down_bias is in the sum once for each rank. Where is it added?": edit(
            "units @ down[own]) + down_bias", "units @ down[own] + down_bias)"
        ),
        "down_bias is missing.": edit(RESULT, "AddUpRanks.apply(units @ down[own])"),
        "A rank that does not add down_bias itself has no gradient of it, and its copy of the bias "
        "will stay behind. Where may every rank add it?": edit(
            RESULT,
            "AddUpRanks.apply(units @ down[own] + (0 if dist.get_rank() else down_bias))",
        ),
        "Each rank adds its part of down_bias: y is right, and the gradient is divided by the "
        "number of ranks. Where may every rank add all of it?": edit(
            "units @ down[own]) + down_bias",
            "units @ down[own] + down_bias / dist.get_world_size())",
        ),
        "up_bias is missing, or it is not of the rank's own units.": [
            edit(" + up_bias[own]", ""),
            edit("up_bias[own]", "up_bias[:hidden]"),
        ],
        "The rows of down are not those of this rank's columns.": edit(
            "down[own]", "down[:: dist.get_world_size()]"
        ),
        "Every rank computes the units of the first block. Which are rank {rank}'s?": edit(
            OWN, "slice(0, hidden)"
        ),
        "The ranks take turns with the hidden units here. Consecutive ones are asked for.": edit(
            OWN, "slice(dist.get_rank(), None, dist.get_world_size())"
        ),
        "The blocks are in the reverse order. Which is rank {rank}'s?": edit(
            OWN,
            "slice((dist.get_world_size() - dist.get_rank() - 1) * hidden, "
            "(dist.get_world_size() - dist.get_rank()) * hidden)",
        ),
        "Forward is right. This is the part of x's gradient that came through rank {rank}'s own "
        "hidden units. Who adds up the others'?": [
            edit(f"{COPY}\n", ""),
            edit("CopyToRanks.apply(x)", "x"),
        ],
        "One of the two products goes round the all-reduce of backward. Which tensor does it "
        "take?": [
            edit("F.silu(copy @", "F.silu(x @"),
            edit("(copy @ up", "(x @ up"),
        ],
        "The mean is taken here. A gradient of x is the sum of what all hidden units contribute.": (
            edit("dist.all_reduce(gradient)", "dist.all_reduce(gradient, dist.ReduceOp.AVG)")
        ),
        "The gradient of y is added up over the ranks, although each of them has it whole. What is "
        "the gradient of a summand?": [
            edit(
                PASS_ON,
                "            gradient = gradient.clone()\n            dist.all_reduce(gradient)\n"
                "            return gradient",
                COPY,
                "            pass",
            ),
        ],
        "The gradient of y is divided by the number of ranks. What is the gradient of a summand?": (
            edit(PASS_ON, "            return gradient / dist.get_world_size()")
        ),
        "The gate lost its silu, or it is applied to the other factor.": [
            edit("F.silu(copy @ gate[:, own])", "(copy @ gate[:, own])"),
            edit(
                "F.silu(copy @ gate[:, own]) * (copy @ up[:, own] + up_bias[own])",
                "(copy @ gate[:, own]) * F.silu(copy @ up[:, own] + up_bias[own])",
            ),
        ],
        "There are gradients in the blocks of other ranks. Does rank {rank} compute their hidden "
        "units, or does it add up what every rank should keep?": Pattern(foreign_units),
        "No gradient has arrived there. On which line does the way from y back to it end?": Pattern(
            lambda obs: isinstance(obs.actual["y"], Tensor) and obs.value is None
        ),
        "Both products send a gradient of x. Which tensor would collect it from both first?": (
            edit("(copy @ up", "(CopyToRanks.apply(x) @ up")
        ),
    },
    max_collectives=2,
    errors={
        "too many collectives": "Each call costs a round trip. Which tensor would collect what "
        "several of yours carry?",
        "hangs": "Does every rank come to both all-reduces? Backward reaches one only where there "
        "is a way from y to x.",
        "cannot be multiplied": SHAPES,
        "must match the size": SHAPES,
    },
    on_pass="y and all gradients of one process at 1 to 4 ranks, with one all-reduce forward and "
    "one backward",
)
