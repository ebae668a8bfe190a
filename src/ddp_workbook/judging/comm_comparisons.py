"""Looks at what a call has sent: with which operations, and in which dtype."""

from collections.abc import Callable, Mapping

from ddp_workbook.judging.check import Comparison, Observation, Pattern, resolve


def send_rows(obs: Observation) -> list[dict]:
    """The messages that this rank has sent, in order."""
    return [row for row in obs.communication if row["op"] == "send"]


def calls_only(
    *allowed: str, required: str, hint: str, mistakes: Mapping[str, Pattern] | None = None
) -> Comparison:
    """Whether a rank has communicated with these operations alone."""
    return Comparison(
        select=lambda obs: sorted({*obs.ops} - {*allowed}),
        expected=[],
        mistakes=mistakes or {},
        hint=hint,
        actual="rank {rank} called {value}",
        required=required,
        show=", ".join,
    )


def bytes_sent(
    expected: int | Callable[..., int], what: str, *, hint: str, required: str | Callable
) -> Comparison:
    """Whether a rank with the right `what` has sent so many bytes; one alone need not send."""

    def total_bytes(obs: Observation) -> int:
        total = sum(row["bytes"] for row in obs.communication)
        return resolve(expected, obs.case) if obs.size == 1 and not total else total

    return Comparison(
        select=total_bytes,
        expected=expected,
        hint=hint,
        actual=f"the right {what}, but rank {{rank}} sent {{value:,}} bytes",
        required=required,
        show=lambda value: value,
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
    mistakes={
        "What does the barrier add? A receive waits until its message has arrived.": Pattern(
            lambda obs: "barrier" in obs.ops
        ),
    },
)
MESSAGE_DTYPE = Comparison(  # of a case with a `dtype`
    select=lambda obs: sorted(
        {row["dtype"] for row in obs.communication} - {f"{obs.case.dtype}"[6:]}
    ),
    expected=[],
    hint="Which of your lines makes the tensor that is sent, and with which dtype?",
    actual="a message in {value} on rank {rank}",
    required=lambda obs: f"in {obs.case.dtype}, the dtype of the tensor",
    show=", ".join,
)
