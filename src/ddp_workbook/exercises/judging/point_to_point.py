"""For exercises that are to be solved with sends and receives alone."""

from ddp_workbook.exercises.judging.check import Look, Seen, When

MESSAGES_ALONE = Look(
    of=lambda seen: [op for op in dict.fromkeys(seen.ops) if op not in ("send", "recv")],
    right=[],
    mistakes={
        "What does the barrier add? A receive waits until its message is there.": When(
            lambda seen: "barrier" in seen.ops
        ),
    },
    otherwise="Which sends and receives do the same?",
    came="rank {rank} called {value}",
    required="sends and receives, and no collective",
    words=", ".join,
)


def sends_of(seen: Seen) -> list[dict]:
    """The messages that this rank has sent, in order."""
    return [row for row in seen.wire if row["op"] == "send"]
