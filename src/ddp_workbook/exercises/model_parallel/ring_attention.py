"""Compute causal attention over one long sequence: keys and values go around the ring of ranks.

All ranks call your function, each with its part of the sequence: rank 0 has the first tokens, rank
1 the next ones, and so on, equally many each. `query`, `key` and `value` are [heads, tokens,
width], contiguous, and of one dtype; leave them unchanged. Return this rank's part of what one
process would compute, `F.scaled_dot_product_attention(query, key, value, is_causal=True)` of the
whole sequence. Forward is enough.

- Use no collective, only `send`, `recv`, `isend`, `irecv` and `batch_isend_irecv`.
- Rank r sends only to rank r + 1, and the last rank to rank 0. Of N ranks, each sends at most
  N - 1 times the keys and values of one block, in their dtype, and nothing else.
- The whole sequence would not fit on a rank. No tensor that you make has more elements than the
  scores of one block, [heads, tokens, tokens]. Two tensors of the size of `key` always fit in that.
  (Only the largest tensor is measured. Keep no more of them than you need.)
- Scores may be large: some are beyond 1000, whose exponential is inf.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from ddp_workbook.judging import Comparison, DistributedCheck, Observation, Pattern, at_most, edit
from ddp_workbook.judging.comm_comparisons import (
    BARRIER,
    MESSAGE_DTYPE,
    ONLY_SEND_AND_RECV,
    send_rows,
)
from ddp_workbook.judging.memory import LargestTensorMode

MINUTES = 15
HINTS = [
    "Begin with the ring alone: in N rounds, print whose keys each rank has. Then decide for each "
    "round which of these keys come later than a rank's queries: none, some, or all.",
    "The softmax over one block divides by the sum of that block's exponentials. Keep the "
    "logarithm of this sum for each row: scores.logsumexp(-1, keepdim=True). Which factor brings "
    "an output from the sum of its block to the sum of both blocks?",
    "With log_sum = torch.logaddexp(a_log_sum, b_log_sum), the factors are (a_log_sum - log_sum)"
    ".exp() and (b_log_sum - log_sum).exp(). A rank that may see nothing of a block leaves it out, "
    "but passes it on all the same.",
]


def ring_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention of this rank's queries; all are [heads, tokens, width] of this rank."""
    ### BEGIN SOLUTION
    rank, ranks = dist.get_rank(), dist.get_world_size()
    tokens, width = query.shape[1:]
    later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)  # in a rank's own block
    out, log_sum = torch.zeros_like(query), torch.full_like(query[..., :1], -torch.inf)
    block = torch.stack([key, value])
    for number in range(ranks):
        if number > 0:
            arriving = torch.empty_like(block)
            sending = dist.isend(block, (rank + 1) % ranks)  # with send, all ranks would wait
            dist.recv(arriving, (rank - 1) % ranks)
            sending.wait()
            block = arriving
        owner = (rank - number) % ranks
        if owner > rank:
            continue  # all of these keys come later
        scores = query @ block[0].mT / width**0.5
        if owner == rank:
            scores = scores.masked_fill(later, -torch.inf)
        part, part_log_sum = scores.softmax(-1) @ block[1], scores.logsumexp(-1, keepdim=True)
        total = torch.logaddexp(log_sum, part_log_sum)
        out = out * (log_sum - total).exp() + part * (part_log_sum - total).exp()
        log_sum = total
    return out
    ### END SOLUTION


class Sequence(NamedTuple):
    """A call: its number, the shape on each rank, the dtype, and the size of queries and keys."""

    number: int
    heads: int
    tokens: int
    width: int
    dtype: torch.dtype
    scale: float = 1.0
    ranks: int = 4


def cases(ranks: int) -> list[Sequence]:
    """One head and two, three; then scores whose exponentials are 0 or inf."""
    return [
        Sequence(0, 1, 4, 1, torch.float64, ranks=ranks),
        Sequence(1, 2, 17, 5, torch.float32, ranks=ranks),
        Sequence(2, 3, 19, 6, torch.float64, ranks=ranks),
        Sequence(3, 2, 15, 5, torch.float64, scale=40.0, ranks=ranks),
    ]


def whole_sequence(case: Sequence) -> list[Tensor]:
    """Query, key and value of all ranks."""
    random = torch.Generator().manual_seed(case.number)
    shape = (case.heads, case.ranks * case.tokens, case.width)
    factors = (case.scale, case.scale, 1.0)
    return [f * torch.randn(shape, generator=random, dtype=case.dtype) for f in factors]


def part_of(whole: Tensor, case: Sequence, rank: int) -> Tensor:
    """The rank's tokens."""
    return whole[:, rank * case.tokens : (rank + 1) * case.tokens].clone()


def expected_output(case: Sequence, rank: int) -> Tensor:
    """This part of what one process computes."""
    query, key, value = whole_sequence(case)
    return part_of(F.scaled_dot_product_attention(query, key, value, is_causal=True), case, rank)


def call_and_watch(function: Callable[..., Tensor], query: Tensor, *others: Tensor) -> Any:
    """Call the reader's function; note on the query how large the largest new tensor was."""
    with LargestTensorMode() as mode:
        returned = function(query, *others)
    query.largest = mode.elements
    return returned


def not_finite(obs: Observation) -> bool:
    """Whether there are nan or inf in the output of this rank."""
    return isinstance(obs.value, Tensor) and not obs.value.isfinite().all()


def block_bytes(case: Sequence) -> int:
    """Those of the keys and values of one rank."""
    return 2 * case.heads * case.tokens * case.width * case.dtype.itemsize


def call_text(case: Sequence) -> str:
    """The call in words."""
    shape, dtype = [case.heads, case.tokens, case.width], str(case.dtype).removeprefix("torch.")
    large = ", with scores beyond 1000" if case.scale > 1 else ""
    return f"ring_attention(query, key, value), each {shape} in {dtype}{large}"


MERGE = "out * (log_sum - total).exp() + part * (part_log_sum - total).exp()"
OWN_MASK = "        if owner == rank:\n            scores"
SKIP = "        if owner > rank:\n            continue  # all of these keys come later\n"
CHECK = DistributedCheck(
    cases=cases,
    call_text=call_text,
    make_args=lambda case, rank: tuple(part_of(one, case, rank) for one in whole_sequence(case)),
    caller=call_and_watch,
    observe=lambda returned, query, key, value: {
        "output": returned,
        "elements of the largest tensor": query.largest,
    },
    compare={
        "operations": ONLY_SEND_AND_RECV,
        "receivers other than the next rank": Comparison(
            "Draw who sends to whom. Is it a ring?",
            [],
            lambda obs: sorted(
                {row["peer"] for row in send_rows(obs)} - {(obs.rank + 1) % obs.size}
            ),
        ),
        "dtypes": MESSAGE_DTYPE,
        "output": Comparison(
            "Compare the rows of one rank with one process. Which keys and values are in them, and "
            "with which weights?",
            expected_output,
        ),
        "bytes sent": at_most(
            "What does a rank send, and how many passes bring every block to every rank?",
            lambda case: (case.ranks - 1) * block_bytes(case),
            lambda obs: sum(row["bytes"] for row in send_rows(obs)),
        ),
        "elements of the largest tensor": at_most(
            "Which of your tensors grows with the number of ranks, or has a fourth dimension? "
            "What can be forgotten after a round?",
            lambda case: case.heads * case.tokens**2,
        ),
    },
    mistakes={
        **BARRIER,
        "Rank {rank}'s queries look at its own block alone. Whose keys come earlier in the "
        "sequence?": edit("range(ranks)", "range(1)"),
        "Every query looks at every key. Which ones come later?": edit(
            SKIP, "", OWN_MASK, "        if False:\n            scores"
        ),
        "Blocks of later ranks are in it. In which rounds must a rank leave its block out?": edit(
            SKIP, ""
        ),
        "A rank's own block is not masked. Which of its keys come later than a query?": edit(
            OWN_MASK, "        if False:\n            scores"
        ),
        "Blocks of earlier ranks are masked like a rank's own. May a query not see all of their "
        "keys?": edit(OWN_MASK, "        if True:\n            scores"),
        "A query does not see its own key here. Does it come later?": edit("triu(1)", "triu(0)"),
        "Queries see their later keys instead of the earlier ones. Which triangle is masked?": edit(
            "triu(1)", "tril(-1)"
        ),
        "The outputs of the blocks are added up, and each of them has weights whose sum is 1. "
        "What is their sum now?": edit(MERGE, "out + part"),
        "The mean of the blocks' outputs is taken. Do all blocks have the same weight in one "
        "softmax over all keys?": edit(
            "return out",
            "return out / (rank + 1)",
            MERGE,
            "out + part",
        ),
        "Each new block gets half of the weight. Which one would a softmax over all keys give "
        "it?": edit(MERGE, "(out + part) / (1 if owner == rank else 2)"),
        "The new block gets its share, but the earlier output keeps the weight that it had. Do the "
        "shares add up to 1?": edit(MERGE, "out + part * (part_log_sum - total).exp()"),
        "Only one block's output is left. How do the earlier ones come into it?": edit(
            MERGE, "part"
        ),
        "The first merge of a rank is right, the next one is not. What must log_sum be after a "
        "merge?": [
            edit("log_sum = total", "log_sum = part_log_sum"),
            edit("log_sum = total", "log_sum = log_sum if number else total"),
        ],
        "The weights of the two outputs are exchanged.": edit(
            MERGE, "part * (log_sum - total).exp() + out * (part_log_sum - total).exp()"
        ),
        "The scores are not divided by the square root of the width.": edit(" / width**0.5", ""),
        "The scores are divided by the square root of something else than the width of a head.": [
            edit("width**0.5", "tokens**0.5"),
            edit("width**0.5", "(len(query) * width) ** 0.5"),
            edit("width**0.5", "width"),
        ],
        "The last pass is missing. How many passes bring a block to the rank before its own?": edit(
            "range(ranks)", "range(max(1, ranks - 1))"
        ),
        "The rank takes the block for another rank's. Which way do blocks go, and whose is it "
        "after so many passes?": edit("(rank - number) % ranks", "(rank + number) % ranks"),
        "In each round a rank sends its own block, so the next one never sees those from further "
        "away. What should it pass on?": edit("isend(block,", "isend(torch.stack([key, value]),"),
        "The keys travel, and the values stay. Which values belong to these keys?": edit(
            "@ block[1]", "@ value"
        ),
        "The values travel, and the keys stay. Which keys belong to these values?": edit(
            "query @ block[0].mT", "query @ key.mT"
        ),
        "After a pass, keys and values have changed places. In which order does a message hold "
        "them?": edit("block = arriving", "block = arriving.flip(0)"),
        "The output is not of the query's shape. Whose tokens, and which dimensions, does it "
        "have?": Pattern(
            lambda obs: isinstance(obs.value, Tensor) and obs.value.shape != obs.expected.shape,
            "output",
        ),
        "There are nan or inf, and only small scores. Is there a row that may see no key of a "
        "block?": Pattern(lambda obs: obs.case.scale == 1 and not_finite(obs), "output"),
        "There are nan or inf where scores are large. Of which numbers do you take the "
        "exponential, and how large can they be?": Pattern(not_finite, "output"),
        "A message is larger than the keys and values of one block. What else is in it?": Pattern(
            lambda obs: max(row["bytes"] for row in send_rows(obs)) > block_bytes(obs.case),
            "bytes sent",
        ),
        "The last rank has a tensor as large as the scores of its queries to all keys of the "
        "sequence. Can softmax be put together block by block?": Pattern(
            lambda obs: (
                obs.all_ranks[-1].value == obs.case.heads * obs.case.tokens**2 * obs.case.ranks
            ),
            "elements of the largest tensor",
        ),
    },
    errors={
        "hangs": "Does every rank come to each pass, also where it leaves the block out? And do "
        "all ranks begin with a send?",
        "must be contiguous": "A transposed tensor cannot be sent as it is. What makes a "
        "contiguous one of it?",
    },
    unchanged_hint="Which line writes into a tensor of the caller, whose backward needs it?",
    on_pass="the attention of one process at 1 to 4 ranks, also of large scores; a rank sends "
    "at most N - 1 blocks of keys and values, and makes no tensor larger than the scores of one "
    "block",
)
