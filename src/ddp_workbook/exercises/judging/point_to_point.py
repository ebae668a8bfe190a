"""Looks for exercises that allow only sends and receives; a case has a `dtype`."""

from ddp_workbook.exercises.judging.check import Look, Seen, When


def sends_of(seen: Seen) -> list[dict]:
    """The messages that this rank has sent, in order."""
    return [row for row in seen.wire if row["op"] == "send"]


MESSAGES_ALONE = Look(
    of=lambda seen: [op for op in dict.fromkeys(seen.ops) if op not in ("send", "recv")],
    right=[],
    mistakes={
        "What does the barrier add? A receive waits until its message has arrived.": When(
            lambda seen: "barrier" in seen.ops
        ),
    },
    otherwise="Which sends and receives do the same?",
    actual="rank {rank} called {value}",
    required="sends and receives, but no collective",
    words=", ".join,
)
OWN_DTYPE = Look(
    of=lambda seen: sorted({row["dtype"] for row in seen.wire} - {f"{seen.case.dtype}"[6:]}),
    right=[],
    otherwise="Which of your lines makes the tensor that is sent, and with which dtype?",
    actual="a message in {value} on rank {rank}",
    required=lambda seen: f"in {seen.case.dtype}, the dtype of the tensor",
    words=", ".join,
)
