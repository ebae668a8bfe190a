"""The engine of the checks: makes the calls, compares, and raises the verdict."""

import contextlib
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ddp_workbook.errors import RankFailed
from ddp_workbook.exercises.judging.attempts import Attempt
from ddp_workbook.exercises.judging.calls import Calls, said
from ddp_workbook.exercises.judging.check import Look, OnRanks, Seen
from ddp_workbook.exercises.judging.diagnosis import diagnose, equal, wrong_parts
from ddp_workbook.exercises.judging.not_yet import NotYet
from ddp_workbook.exercises.judging.on_ranks import run_probe

UNTOUCHED = "the arguments stay unchanged, because the caller still needs them"
KEPT = (
    "Made first, this call is right; after the other calls it is wrong. What does your function "
    "keep from one call to the next?"
)
MEMORY = "Do the results of two calls share memory, and which line fills it again?"
BARRIER = "What does the barrier add? The collective itself already waits for the other ranks."
AN_OBJECT = (
    "An object collective is two: the lengths go first, then the objects as bytes. Which tensor "
    "could hold your values?"
)


def examine_calls(check: OnRanks, attempt: Attempt, sizes: Sequence[int] | None = None) -> str:
    """Return what the attempt has proved. Raises NotYet, and what `launch` raises.

    The largest world size comes first, because mistakes look alike in small ones; then the others
    run in parallel, because ranks mostly wait.
    """
    largest, *others = sorted(sizes or check.sizes, reverse=True) or [0]
    examine_size(check, attempt, largest)
    if others:
        side_by_side(check, attempt, others)
    return check.proves


def examine_size(check: OnRanks, attempt: Attempt, size: int) -> None:
    """Raise NotYet if the attempt is wrong at this world size."""
    compare_all(check, attempt, size, calls_of(check, attempt, size))


def side_by_side(check: OnRanks, attempt: Attempt, sizes: Sequence[int]) -> None:
    """Examine these sizes at the same time; of those that are wrong, raise for the first."""
    interrupt = threading.Event()
    copies = [replace(attempt, cancelled=interrupt) for _ in sizes]
    with ThreadPoolExecutor(len(sizes)) as pool:
        tasks = [
            pool.submit(examine_size, check, copy, size)
            for copy, size in zip(copies, sizes, strict=True)
        ]
        try:
            wait(tasks)
        finally:
            interrupt.set()  # either all have ended by now, or a KeyboardInterrupt is on its way
    for copy, task in zip(copies, tasks, strict=True):
        if error := task.exception():
            for name in ("ranks", "printed", "first_was_right", "later"):
                setattr(attempt, name, getattr(copy, name))
            raise error


def calls_of(check: OnRanks, attempt: Attempt, size: int) -> list[list[Seen]]:
    """All calls of a world size. If one fails, the first call is also made alone."""
    with tempfile.NamedTemporaryFile("rb") as progress:
        try:
            return made(check, attempt, size, progress=progress.name)
        except (NotYet, RankFailed):
            if not (number := progress.read()):
                raise
            # A copy of the attempt, so that this one keeps what was printed.
            first = made(check, replace(attempt), size, only=(0, None))
            compare_all(check, attempt, size, first)
            attempt.first_was_right = True
            attempt.later = said(check, attempt.name, check.cases_of(size)[int(number)], 0)
            raise


def made(
    check: OnRanks,
    attempt: Attempt,
    size: int,
    only: tuple[int, int | None] | None = None,
    progress: str = "",
) -> list[list[Seen]]:
    """Make the calls; return what was seen on each rank in each of them.

    `only` names a single call: its number and, for `Alone`, perhaps the rank that it is made for.
    The file `progress` is written to when a call after the first one is made.
    """
    probe = Calls(attempt.name, size, only, progress)
    answers = run_probe(attempt, probe, size if check.group else 0)
    calls = [[one for answer in answers for one in answer[n]] for n in range(len(answers[0]))]
    cases = check.cases_of(size)
    call, rank = only or (0, None)
    return [
        [Seen(n, r, cases[n], **one) for r, one in enumerate(of_ranks, start=rank or 0)]
        for n, of_ranks in enumerate(calls, start=call)
    ]


def compare_all(check: OnRanks, attempt: Attempt, size: int, calls: list[list[Seen]]) -> None:
    """Raise NotYet for the first look that finds something wrong, then for the cost of a call."""
    for call in calls:
        for one in call:
            one.everyone = call
            one.again = [c[one.rank] for c in calls if c is not call and c[0].case is one.case]
    for look in check.looks:
        if found := diagnose(look, calls):
            seen, where_to_look = found
            if not look.timing_dependent and right_if_made_first(check, attempt, size, look, seen):
                where_to_look = KEPT
            raise NotYet(
                *page(
                    check,
                    attempt.name,
                    look,
                    seen,
                    where_to_look,
                    right_so_far(check, calls[: seen.call]),
                )
            )
    for call in calls:
        for one in call:
            refuse_changes(check, attempt.name, one)
            refuse_overwritten(check, attempt.name, one)
            refuse_too_much(check, attempt.name, one)


def right_if_made_first(
    check: OnRanks, attempt: Attempt, size: int, look: Look, seen: Seen
) -> bool:
    """Whether a call that went wrong after others is right without them; makes it once more."""
    if seen.call == 0 and (check.group or seen.rank == 0):
        return False
    with contextlib.suppress(NotYet, RankFailed):
        rank = None if check.group else seen.rank
        alone = made(check, replace(attempt), size, only=(seen.call, rank))
        for one in alone[0]:
            one.everyone = alone[0]
            one.again = [before for before in seen.everyone if before.rank == one.rank]
        return diagnose(look, alone) is None
    return False


def right_so_far(check: OnRanks, calls: list[list[Seen]]) -> bool:
    """Whether there are such calls, and every look finds each of them right."""
    return bool(calls) and all(diagnose(look, calls) is None for look in check.looks)


def page(
    check: OnRanks, name: str, look: Look, seen: Seen, where_to_look: str, later: bool
) -> tuple:
    """The four sentences: called, came back, required, where to look; `later`: other calls came
    before this one, and were right.
    """
    part = next(iter(wrong_parts(look, seen)), "")
    called = said(check, name, seen.case, seen.rank, part)
    if later:
        called += f"\n(call {seen.call + 1}; the calls before it were right)"
    came, required = (filled(look, seen, words, part) for words in (look.came, look.required))
    return called, came, required, where_to_look


def filled(look: Look, seen: Seen, template: Any, part: str) -> str:
    """The words of a template, or of a function that takes what was seen.

    Only the first wrong part of a dict is shown.
    """
    if callable(template):
        return template(seen)
    everyone = seen.everyone
    alike = len(everyone) > 1 and all(equal(look, one.right, seen.right) for one in everyone)
    all_came = alike and all(equal(look, one.value, seen.value) for one in everyone)
    on = f"on rank {seen.rank}" if len(everyone) > 1 else ""
    return template.format(
        value=look.words(seen.value[part] if part else seen.value),
        right=look.words(seen.right[part] if part else seen.right),
        where="on every rank" if all_came else on,
        there="on every rank" if alike else on,
        rank=seen.rank,
        size=seen.size,
        part=part,
    ).strip()


def refuse_changes(check: OnRanks, name: str, one: Seen) -> None:
    """Raise NotYet if an argument has changed."""
    if one.changed:
        called = said(check, name, one.case, one.rank)
        where = f" on rank {one.rank}" if check.group else ""
        came = f"your function changed {' and '.join(one.changed)}{where}"
        raise NotYet(called, came, UNTOUCHED, check.keeps)


def refuse_overwritten(check: OnRanks, name: str, one: Seen) -> None:
    """Raise NotYet if a later call has changed what this one returned."""
    if one.overwritten:
        where = f" on rank {one.rank}" if check.group else ""
        came = f"the right result{where}, which a later call has changed"
        required = "the result of a call stays the same, whatever is called later"
        raise NotYet(said(check, name, one.case, one.rank), came, required, MEMORY)


def refuse_too_much(check: OnRanks, name: str, one: Seen) -> None:
    """Raise NotYet if the right result took more collectives than the task allows."""
    ops = [op for op in one.ops if op not in ("send", "recv")]
    if check.most is None or len(ops) <= check.most:
        return
    counts = {op: ops.count(op) for op in ops}
    each = ", ".join(f"{count} {op}" for op, count in counts.items())
    objects = any(  # the lengths, then the bytes, for the same line
        a["line"] == b["line"] and (a["dtype"], b["dtype"]) == ("int64", "uint8")
        for a, b in pairwise(one.wire)
    )
    look = AN_OBJECT if objects else BARRIER if "barrier" in counts else check.too_much
    called = said(check, name, one.case, one.rank)
    most = f"at most {check.most} collective{'s' * (check.most != 1)}"
    raise NotYet(called, f"the right result, after {each} on rank {one.rank}", most, look)
