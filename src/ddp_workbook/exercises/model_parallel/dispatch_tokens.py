"""Send each token to its expert on another rank, compute there, and bring the result back.

All ranks call your function. Each has `tokens` of its own, the number of the expert of each token,
and its own `experts`: matrices, equally many on every rank. Numbers run over the ranks: with two
experts on a rank, rank 0 has 0 and 1, and rank 1 has 2 and 3. Return the output of every token, the
product `token @ expert`, in the order of the tokens.

- Ranks may have different numbers of tokens, or none. Some experts get no token, others get all.
- All ranks then call backward of their own outputs. Afterwards `tokens` and `experts` have the
  gradients of one process that adds up all ranks' losses, so nothing is divided; an expert without
  tokens has zeros.
- Use `dist.all_to_all_single` for everything, at most six calls on a rank, forward and backward
  together.
- Floating-point numbers travel only to where they are needed: each token, each output and the
  gradient of each at most once. Counts and other integers are free.
"""

from collections.abc import Callable
from operator import le
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.judging import Comparison, DistributedCheck, Pattern, body, edit
from ddp_workbook.judging.comm_comparisons import calls_only

MINUTES = 20
HINTS = [
    "Sort the tokens by expert: then the rows for a rank stand together. What must a rank know "
    "about the rows that come, before it can receive them and give them to its experts?",
    "Exchange one count for each expert instead of one for each rank. Their sums are the sizes of "
    "the messages, and the counts say which of the received rows are whose.",
    "A class like the page's Exchange may stand inside your function; it serves both ways. Two "
    "orders must be undone: the rows of your experts before you send them back, and the tokens.",
]


def dispatch_tokens(tokens: Tensor, expert: Tensor, experts: Tensor) -> Tensor:
    """Outputs [n, out] of tokens [n, width]; expert is int64 [n], experts [own, width, out]."""
    ### BEGIN SOLUTION

    class Exchange(torch.autograd.Function):
        @staticmethod
        def forward(ctx, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
            ctx.sent, ctx.received = sent, received
            arrived = rows.new_empty(sum(received), rows.shape[1])
            dist.all_to_all_single(arrived, rows.contiguous(), received, sent)
            return arrived

        @staticmethod
        def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:
            back = gradient.new_empty(sum(ctx.sent), gradient.shape[1])
            dist.all_to_all_single(back, gradient.contiguous(), ctx.sent, ctx.received)
            return back, None, None

    ranks, own = dist.get_world_size(), len(experts)
    order = expert.argsort()
    counts = expert.bincount(minlength=ranks * own)
    incoming = torch.empty_like(counts)
    dist.all_to_all_single(incoming, counts)
    sent = counts.view(ranks, own).sum(1).tolist()
    received = incoming.view(ranks, own).sum(1).tolist()
    rows = Exchange.apply(tokens[order], sent, received)
    whose = torch.arange(own).repeat(ranks).repeat_interleave(incoming)  # experts of each rank
    outputs = torch.zeros(len(rows), experts.shape[2], dtype=rows.dtype)
    for number, matrix in enumerate(experts):
        mine = (whose == number).nonzero().flatten()
        outputs = outputs.index_copy(0, mine, rows[mine] @ matrix)
    returned = Exchange.apply(outputs, received, sent)
    return returned[order.argsort()]
    ### END SOLUTION


class Tokens(NamedTuple):
    """A call: the experts of the tokens of each rank, those of a rank, shapes and the dtype."""

    chosen: list[list[int]]  # cut to the experts that there are
    own: int
    width: int
    out: int
    dtype: torch.dtype
    ranks: int = 4


CASES = [
    Tokens([[1, 0, 2, 1, 3], [2, 0], [3, 3, 1, 0], [0, 2]], 1, 3, 3, torch.float32),
    Tokens([[5, 0, 3, 2, 6, 1], [7, 4, 1], [], [2, 2, 6, 5, 0]], 2, 4, 2, torch.float64),
    Tokens([[1, 1, 1], [1, 1], [1], [1, 1, 1, 1]], 2, 2, 3, torch.float32),  # all to one
    Tokens([[], [], [], []], 1, 2, 2, torch.float32),
    Tokens([[0, 2, 5, 2, 5, 0, 8, 8], [3, 9, 3, 11], [10, 1, 4], [6, 7]], 3, 1, 2, torch.float32),
]


def chosen(case: Tokens, rank: int) -> Tensor:
    """The expert of each token of a rank, among those of the ranks that there are."""
    return torch.tensor(case.chosen[rank], dtype=torch.int64) % (case.ranks * case.own)


def make_args(case: Tokens, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, their experts, and the matrices of a rank."""
    random = torch.Generator().manual_seed(rank)
    shapes = [(len(case.chosen[rank]), case.width), (case.own, case.width, case.out)]
    tokens, experts = (
        torch.randn(shape, generator=random, dtype=case.dtype).requires_grad_() for shape in shapes
    )
    return tokens, chosen(case, rank), experts


def forward_and_backward(function: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
    """What the function returns, after its backward where it has one."""
    outputs = function(*arguments)
    if isinstance(outputs, Tensor) and outputs.requires_grad:
        scale = torch.linspace(1, 2, outputs.numel(), dtype=outputs.dtype)
        outputs.backward(scale.reshape(outputs.shape))
    return outputs


def observe(outputs: Any, tokens: Tensor, _: Tensor, experts: Tensor) -> dict[str, Any]:
    """The outputs and the gradients."""
    return {
        "outputs": outputs,
        "gradient of tokens": tokens.grad,
        "gradient of experts": experts.grad,
    }


def one_process(part: str) -> Callable[[Tokens, int], Tensor]:
    """This part on a rank, with the tokens and experts of all ranks in one process."""

    def on_rank(case: Tokens, rank: int) -> Tensor:
        arguments = [make_args(case, one) for one in range(case.ranks)]
        matrices = torch.cat([experts for *_, experts in arguments])
        parts = []
        for tokens, expert, experts in arguments:
            outputs = forward_and_backward(
                lambda *_, rows=tokens, numbers=expert: torch.einsum(
                    "nw,nwo->no", rows, matrices[numbers]
                )
            )
            parts.append((outputs.detach(), tokens, experts))
        outputs, tokens, experts = parts[rank]
        return observe(outputs, tokens, expert, experts)[part]

    return on_rank


def expected_bytes(case: Tokens, rank: int) -> int:
    """Tokens and gradients of outputs, of the rank's own rows; the other two of what arrives."""
    first = rank * case.own
    everyone = torch.cat([chosen(case, one) for one in range(case.ranks)])
    arrived = int(((everyone >= first) & (everyone < first + case.own)).sum())
    numbers = (len(case.chosen[rank]) + arrived) * (case.width + case.out)
    return numbers * case.dtype.itemsize


def float_bytes(obs: Any) -> int:
    """Those of the floating-point numbers that a rank has sent."""
    return sum(row["bytes"] for row in obs.communication if row["dtype"].startswith("float"))


def permuted(obs: Any) -> bool:
    """Whether the right rows stand in another order."""
    if not isinstance(obs.value, Tensor) or obs.value.shape != obs.expected.shape:
        return False
    found, right = (sorted(map(tuple, rows.tolist())) for rows in (obs.value, obs.expected))
    return torch.allclose(torch.tensor(found), torch.tensor(right), atol=1e-5)


WHOSE = "torch.arange(own).repeat(ranks).repeat_interleave(incoming)  # experts of each rank"
LOOP = """    outputs = torch.zeros(len(rows), experts.shape[2], dtype=rows.dtype)
    for number, matrix in enumerate(experts):
        mine = (whose == number).nonzero().flatten()
        outputs = outputs.index_copy(0, mine, rows[mine] @ matrix)
"""
CHECK = DistributedCheck(
    cases=CASES,
    call_text=lambda case: (
        "dispatch_tokens(tokens, expert, experts), then backward of the outputs, where expert is "
        + ", ".join(f"{chosen(case, rank).tolist()} on rank {rank}" for rank in range(case.ranks))
        + f"; experts on a rank: {case.own}; {str(case.dtype)[6:]}"
    ),
    make_args=make_args,
    caller=forward_and_backward,
    observe=observe,
    compare={
        "outputs": Comparison(
            "Follow one token: at which place is it when it is sent, when it has arrived, when its "
            "output is sent back, and at the end?",
            one_process("outputs"),
        ),
        "gradient of tokens": Comparison(
            "Follow one row back from the outputs: which of its steps does autograd see?",
            one_process("gradient of tokens"),
        ),
        "gradient of experts": Comparison(
            "Which gradients of outputs reach this rank's experts, and beside which tokens?",
            one_process("gradient of experts"),
        ),
        "operations": calls_only(
            "all_to_all_single",
            required="all_to_all_single, and nothing else",
            hint="Each row, and each count, is needed on one rank only. What do other operations "
            "do beyond that?",
        ),
        "bytes": Comparison(
            "What travels besides: padding, a row for a second time, or something else than "
            "tokens, outputs and their gradients?",
            expected_bytes,
            float_bytes,
            actual="the right outputs and gradients, but rank {rank} sent {value} bytes of "
            "floating-point numbers",
            required="{expected} bytes at most: each token, each output and their gradients once",
            equal=le,
        ),
    },
    mistakes={
        "All outputs are there, but not in the order of the tokens. Which place had each of them "
        "before you sorted?": Pattern(permuted, "outputs"),
        "These are the products with rank {rank}'s own experts. Who has the others?": body(
            "return torch.einsum('nw,nwo->no', tokens, experts[expert % len(experts)])"
        ),
        "The tokens are sent as they stand in `tokens`. Which of them go to rank 0 then?": edit(
            "tokens[order]", "tokens"
        ),
        "The experts are dealt to the ranks in turn here: 0 to rank 0, 1 to rank 1. Which numbers "
        "does the task give to rank 0?": edit(
            "    order = ",
            "    expert = expert % ranks * own + expert // ranks\n    order = ",
        ),
        "Rows have met the wrong expert of the right rank. They arrive rank by rank, and only "
        "within that expert by expert.": edit(
            WHOSE, "torch.arange(own).repeat_interleave(incoming.view(ranks, own).sum(0))"
        ),
        "Every row has met the first expert of its rank. How does that rank know which one it is "
        "for?": edit(WHOSE, "torch.zeros(len(rows))"),
        "Outputs go back expert by expert. In which order have the rows arrived, and from whom?": (
            edit(
                LOOP,
                "    outputs = torch.cat([rows[whose == n] @ experts[n] for n in range(own)])\n",
            )
        ),
        "Gradients are divided by the number of ranks. From how many ranks does the gradient of a "
        "row come?": edit("return back, None", "return back / dist.get_world_size(), None"),
        "No gradient has arrived there. Which line on the way from the outputs does autograd not "
        "see?": Pattern(lambda obs: obs.value is None),
    },
    max_collectives=6,
    errors={
        "too many collectives": "How often do rows travel forward, and how often backward? One "
        "message to each rank can carry the rows of all its experts.",
        "invalid gradient": "Gradients travel the other way. Which count is now that of the rows "
        "to send, and which of those to receive?",
        "Split sizes": "The first list of sizes is that of the rows to receive, the second that of "
        "the rows to send. What does each add up to?",
    },
    on_pass="outputs and gradients of one process at 1 to 4 ranks, experts without tokens and with "
    "all of them, and no row sent in vain",
)
