"""What a mistake would have given: edited solutions, on the same calls and ranks as the attempt."""

import io
import time
from collections.abc import Sequence
from typing import Any

from ddp_workbook.errors import WorkbookError
from ddp_workbook.exercises.judging.attempts import Attempt
from ddp_workbook.exercises.judging.calls import Variants
from ddp_workbook.exercises.judging.check import OnRanks, Seen
from ddp_workbook.launcher.calls import Call
from ddp_workbook.launcher.launch import run_ranks
from ddp_workbook.launcher.standstill import Limits

IDLE, PROCESSOR, EACH = 3.0, 2.0, 0.5  # seconds; EACH text adds so much processor time
ALL = None  # all calls of a world size


def run_variants(
    check: OnRanks,
    attempt: Attempt,
    size: int,
    texts: Sequence[str],
    only: int | None = ALL,
    seconds: float = 60,
) -> list[list[list[Seen]] | None]:
    """By text: what was seen on each rank in each call, or only in call number `only`.

    None stands for a text that raises or does not end. Such a one ends the launch; then its halves
    are run, until `seconds` have passed.
    """
    if not texts:
        return []
    return _run(check, attempt, size, texts, only, time.monotonic() + seconds)


def _run(
    check: OnRanks,
    attempt: Attempt,
    size: int,
    texts: Sequence[str],
    only: int | None,
    end: float,
) -> list[list[list[Seen]] | None]:
    try:
        answers = run_ranks(
            Call(Variants(attempt.name, size, only, texts)),
            max(1, size),
            quiet=True,
            by_evidence=Limits(idle=IDLE, processor=PROCESSOR + EACH * len(texts)),
            output=io.StringIO(),
            cancelled=attempt.cancelled,
        )
    except WorkbookError:
        if len(texts) == 1 or time.monotonic() > end:
            return [None] * len(texts)
        half = len(texts) // 2
        parts = (texts[:half], texts[half:])
        return [one for part in parts for one in _run(check, attempt, size, part, only, end)]
    by_text = zip(*answers, strict=True)
    return [None if None in ranks else seen_in(check, size, ranks, only) for ranks in by_text]


def seen_in(
    check: OnRanks, size: int, answers: Sequence[Any], only: int | None, rank: int = 0
) -> list[list[Seen]]:
    """What the ranks have returned, by call and rank; the ranks' numbers begin at `rank`."""
    calls = [[one for answer in answers for one in answer[n]] for n in range(len(answers[0]))]
    cases = check.cases_of(size)
    return linked(
        [
            [Seen(n, r, cases[n], **one) for r, one in enumerate(of_ranks, start=rank)]
            for n, of_ranks in enumerate(calls, start=only or 0)
        ]
    )


def linked(calls: list[list[Seen]]) -> list[list[Seen]]:
    """The same calls, in which each rank knows the other ranks and other calls of its case."""
    for call in calls:
        for one in call:
            one.everyone = call
            one.again = [c[one.rank] for c in calls if c is not call and c[0].case is one.case]
    return calls
