"""Looks at what a call has sent: with which operations, and in which dtype."""

from collections.abc import Callable, Mapping

from ddp_workbook.exercises.judging.check import Look, Seen, When, ask


def sends_of(seen: Seen) -> list[dict]:
    """The messages that this rank has sent, in order."""
    return [row for row in seen.wire if row["op"] == "send"]


def calls_only(
    *allowed: str, required: str, otherwise: str, mistakes: Mapping[str, When] | None = None
) -> Look:
    """Whether a rank has communicated with these operations alone."""
    return Look(
        of=lambda seen: sorted({*seen.ops} - {*allowed}),
        right=[],
        mistakes=mistakes or {},
        otherwise=otherwise,
        actual="rank {rank} called {value}",
        required=required,
        words=", ".join,
    )


def bytes_sent(
    right: int | Callable[..., int], what: str, *, otherwise: str, required: str | Callable
) -> Look:
    """Whether a rank with the right `what` has sent so many bytes; one alone need not send."""

    def sent(seen: Seen) -> int:
        found = sum(row["bytes"] for row in seen.wire)
        return ask(right, seen.case) if seen.size == 1 and not found else found

    return Look(
        of=sent,
        right=right,
        otherwise=otherwise,
        actual=f"the right {what}, but rank {{rank}} sent {{value:,}} bytes",
        required=required,
        words=lambda value: value,
    )


ALL_REDUCE_ALONE = calls_only(
    "all_reduce",
    required="all_reduce, and nothing else",
    otherwise="Which collective gives every rank the sum? No other one is needed.",
)
MESSAGES_ALONE = calls_only(
    "send",
    "recv",
    required="sends and receives, but no collective",
    otherwise="Which sends and receives do the same?",
    mistakes={
        "What does the barrier add? A receive waits until its message has arrived.": When(
            lambda seen: "barrier" in seen.ops
        ),
    },
)
OWN_DTYPE = Look(  # of a case with a `dtype`
    of=lambda seen: sorted({row["dtype"] for row in seen.wire} - {f"{seen.case.dtype}"[6:]}),
    right=[],
    otherwise="Which of your lines makes the tensor that is sent, and with which dtype?",
    actual="a message in {value} on rank {rank}",
    required=lambda seen: f"in {seen.case.dtype}, the dtype of the tensor",
    words=", ".join,
)
