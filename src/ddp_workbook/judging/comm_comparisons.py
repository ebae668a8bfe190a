"""Looks at what a call has sent: with which operations, and in which dtype."""

from collections.abc import Callable

from ddp_workbook.judging.check import resolve
from ddp_workbook.judging.comparison import Comparison, Observation, Pattern


def send_rows(obs: Observation) -> list[dict]:
    """The messages that this rank has sent, in order."""
    return [row for row in obs.communication if row["op"] == "send"]


def calls_only(*allowed: str, required: str, hint: str) -> Comparison:
    """Whether a rank has communicated with these operations alone."""
    return Comparison(
        hint,
        [],
        lambda obs: sorted({*obs.ops} - {*allowed}),
        actual="rank {rank} called {value}",
        required=required,
    )


def bytes_sent(
    expected: int | Callable[..., int], what: str, *, hint: str, required: str | Callable
) -> Comparison:
    """Whether a rank with the right `what` has sent so many bytes; one alone need not send."""

    def total_bytes(obs: Observation) -> int:
        total = sum(row["bytes"] for row in obs.communication)
        return resolve(expected, obs.case) if obs.size == 1 and not total else total

    return Comparison(
        hint,
        expected,
        total_bytes,
        actual=f"the right {what}, but rank {{rank}} sent {{value}} bytes",
        required=required,
    )


ONLY_ALL_REDUCE = calls_only(
    "all_reduce",
    required="all_reduce, and nothing else",
    hint="Which collective gives every rank the sum? No other one is needed.",
)
ONLY_SEND_AND_RECV = calls_only(
    "send",
    "recv",
    required="sends and receives, but no collective",
    hint="Which sends and receives do the same?",
)
BARRIER = {
    "What does the barrier add? A receive waits until its message has arrived.": Pattern(
        lambda obs: "barrier" in obs.ops, "operations"
    ),
}
MESSAGE_DTYPE = Comparison(  # of a case with a `dtype`
    "Which of your lines makes the tensor that is sent, and with which dtype?",
    [],
    lambda obs: sorted({row["dtype"] for row in obs.communication} - {f"{obs.case.dtype}"[6:]}),
    actual="a message in {value} on rank {rank}",
    required=lambda obs: f"in {obs.case.dtype}, the dtype of the tensor",
)
