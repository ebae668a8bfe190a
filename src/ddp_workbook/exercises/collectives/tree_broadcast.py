"""Broadcast a tensor along a tree, by sends and receives, in as few rounds as possible.

Your function is called on all ranks, with the same `src` and with a tensor of the same shape and
dtype. When it returns, `tensor` holds on every rank what it held on rank `src`.

- Use no collective, only `send`, `recv`, `isend`, `irecv` and `batch_isend_irecv`.
- Each rank except `src` receives exactly one message: the whole tensor, in its own dtype.
- Messages go in rounds. In one round, a rank sends at most one message, and only what it had before
  that round.
- N ranks take at most log2 N rounds, rounded up: 1 for 2 ranks, 2 for 3 and 4, 3 for 5 to 8. A
  single rank sends nothing.
- Wait for everything that you start: the caller may change the tensor right after the call.
- Messages must be contiguous; `tensor` may be a view that is not, such as `big.T`.
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.judging import Comparison, DistributedCheck, Observation, Pattern, edit, in_words
from ddp_workbook.judging.comm_comparisons import (
    BARRIER,
    MESSAGE_DTYPE,
    ONLY_SEND_AND_RECV,
    send_rows,
)

MINUTES = 20
HINTS = [
    "After the first round two ranks have the numbers. How many can have them after the second and "
    "the third round, if every rank that has them sends in every round?",
    "Renumber the ranks: src becomes 0, the next one 1, and rank 0 follows the last one. If k "
    "ranks have the numbers, these are 0 to k - 1. To whom can each of them send?",
    "Let a distance begin at 1 and double in each round. In a round, which of the new numbers send "
    "that far, which ones receive, and which have no rank at that distance?",
]


def tree_broadcast(tensor: Tensor, src: int = 0) -> None:
    """Fill `tensor` (any shape), in place, with what it holds on rank `src`."""
    ### BEGIN SOLUTION
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks  # src has place 0
    box = tensor.contiguous()  # the tensor itself, if it is contiguous
    distance = 1  # the first `distance` places have the numbers
    while distance < ranks:
        if place < distance and place + distance < ranks:
            dist.send(box, (rank + distance) % ranks)
        elif distance <= place < 2 * distance:
            dist.recv(box, (rank - distance) % ranks)
        distance *= 2
    tensor.copy_(box)
    ### END SOLUTION


class Message(NamedTuple):
    """A call: who has the numbers, and the shape and dtype of the tensors."""

    src: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    contiguous: bool = True


KINDS = [((2, 3), torch.float64), ((), torch.int64), ((7,), torch.float32)]


def cases(ranks: int) -> list[Message]:
    """Every rank as src, beginning with rank 1; then a tensor that is not contiguous."""
    calls = [Message((n + 1) % ranks, *KINDS[n % len(KINDS)]) for n in range(ranks)]
    return [*calls, Message(ranks - 1, (3, 4), torch.float64, contiguous=False)]


def tensor_of(case: Message, rank: int) -> Tensor:
    """What `rank` holds before the call: fractions, if the dtype has some, about 100 on rank 0."""
    shape = torch.Size(case.shape)
    numbers = torch.arange(1, shape.numel() + 1).reshape(shape) * 1.1 + 100.3 * (rank + 1)
    tensor = (numbers * (-1) ** rank).to(case.dtype)
    return tensor if case.contiguous else tensor.T.contiguous().T


def nbytes(obs: Observation) -> int:
    """How many bytes each tensor has."""
    return tensor_of(obs.case, obs.rank).nbytes


def messages_to(obs: Observation) -> list[dict]:
    """The messages to this rank."""
    return [
        row for rank_obs in obs.all_ranks for row in send_rows(rank_obs) if row["peer"] == obs.rank
    ]


def sends_too_early(obs: Observation) -> bool:
    """Whether a rank that is not src sent something before it had waited for its receive."""
    first = next(iter(send_rows(obs)), None)
    if obs.rank == obs.case.src or first is None:
        return False
    return obs.ops[0] == "send" or bool(first.get("under_way"))


def rounds_of(obs: Observation) -> list[list[tuple[int, int]]]:
    """Who sends to whom in each round, if every rank sends as early as the rules allow."""
    sends = [[row["peer"] for row in send_rows(rank_obs)] for rank_obs in obs.all_ranks]
    holders, rounds = [obs.case.src], []
    while pairs := [(rank, sends[rank].pop(0)) for rank in holders if sends[rank]]:
        rounds.append(pairs)
        holders += [peer for _, peer in pairs]
    return rounds


def min_rounds(ranks: int) -> int:
    """log2, rounded up."""
    return (ranks - 1).bit_length()


def describe_rounds(obs: Observation) -> str:
    """The rounds, and who has the numbers first without sending them."""
    rounds, holders = rounds_of(obs), {obs.case.src}
    pair_texts = "; ".join(
        ", ".join(f"{source} to {target}" for source, target in pairs) for pairs in rounds
    )
    words = f"{len(rounds)} rounds: rank {pair_texts}"
    for number, pairs in enumerate(rounds, start=1):
        if idle := holders - {rank for rank, _ in pairs}:
            return f"{words}\nin round {number}, rank {min(idle)} has the numbers and is idle"
        holders |= {peer for _, peer in pairs}
    return words


def call_text(case: Message) -> str:
    """The call, and what is to be sent."""
    arguments = f"tensor, src={case.src}" if case.src else "tensor"  # 0 is the default
    kind = "" if case.contiguous else ", a view that is not contiguous"
    return (
        f"tree_broadcast({arguments}), where tensor was {in_words(tensor_of(case, case.src))} on "
        f"rank {case.src}{kind}"
    )


CHECK = DistributedCheck(
    sizes=(1, 2, 3, 4, 5, 7),  # log2 5 is nearer to 2 than to 3; 7 makes trees differ most
    cases=cases,
    call_text=call_text,
    make_args=lambda case, rank: (tensor_of(case, rank), case.src)[: 2 if case.src else 1],
    observe=lambda returned, tensor, *src: tensor,
    compare={
        "operations": ONLY_SEND_AND_RECV,
        "messages to this rank": Comparison(
            "Which ranks have the numbers after each round? Write it down for this case.",
            lambda case, rank: int(rank != case.src),
            lambda obs: len(messages_to(obs)),
            required=lambda obs: f"one message to each rank except rank {obs.case.src}",
        ),
        "dtypes": MESSAGE_DTYPE,
        "bytes of a message": Comparison(
            "What does a message hold?",
            [],
            lambda obs: sorted({row["bytes"] for row in obs.communication} - {nbytes(obs)}),
            required=lambda obs: f"{nbytes(obs)} bytes, the whole tensor",
        ),
        "order": Comparison(
            "What does its tensor hold at this moment?",
            False,
            sends_too_early,
            actual="rank {rank} sent before it had received",
            required="a rank passes on what has arrived",
        ),
        "rounds": Comparison(
            "Which rank does not have the numbers, and could get them in that round?",
            [],
            lambda obs: rounds_of(obs)[min_rounds(obs.size) :],
            actual=describe_rounds,
            required=lambda obs: f"{min_rounds(obs.size)} rounds for {obs.size} ranks",
        ),
        "tensor": Comparison(
            "Whose numbers are these, and what did your code do with them?",
            lambda case: tensor_of(case, case.src),
        ),
    },
    mistakes={
        **BARRIER,
        "Here src itself gets a message, and another rank gets none. What is src for, and which of "
        "your lines use it?": edit("(rank - src) % ranks", "rank"),
        "A message has reached this rank, but not its tensor. Which memory did you fill, and is it "
        "the tensor's own?": [
            edit("tensor.copy_(box)", "return box"),
            edit("tensor.copy_(box)", "return box")
            + edit("= tensor.contiguous()", "= 1 * tensor.contiguous()"),
        ],
        "Which rank sends to one that already has the numbers?": Pattern(
            lambda obs: obs.value > obs.expected, "messages to this rank"
        ),
    },
    on_pass="every rank as src, at 1 to 5 and 7 ranks: N - 1 messages in log2 N rounds, rounded up",
)
