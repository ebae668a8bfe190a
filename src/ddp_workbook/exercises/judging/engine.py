"""The engine of the checks: makes the calls, compares, and raises the verdict."""

import contextlib
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from ddp_workbook.errors import RankFailed
from ddp_workbook.exercises.judging import source
from ddp_workbook.exercises.judging.attempts import Attempt
from ddp_workbook.exercises.judging.calls import Calls, WithSolution, said
from ddp_workbook.exercises.judging.check import Look, OnRanks, Seen
from ddp_workbook.exercises.judging.diagnosis import (
    equal,
    of_its_kind,
    on_one_rank,
    worded,
    wrong_ones,
    wrong_parts,
)
from ddp_workbook.exercises.judging.not_yet import NotYet
from ddp_workbook.exercises.judging.on_ranks import run_probe
from ddp_workbook.exercises.judging.reasons import Reasons
from ddp_workbook.exercises.judging.values import first_difference
from ddp_workbook.exercises.judging.variants import run_variants, seen_in

SOLUTIONS: dict[tuple[str, int], list[list[Seen]]] = {}  # name, size -> what the solution gave
UNTOUCHED = "the arguments stay unchanged, because the caller still needs them"
KEPT = (
    "Made first, this call is right; after the other calls it is wrong. What does your function "
    "keep from one call to the next?"
)
CHANCE = (
    "The same call, made again, gave another result. What in your function depends on chance, or "
    "on which of the threads or ranks is faster?"
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
    ranks = size if check.group else 0
    call, rank = only or (None, 0)
    key = (attempt.name, size)
    if check.needs_solution and key not in SOLUTIONS:
        both = run_probe(attempt, WithSolution(probe, solution_of(attempt.name)), ranks)
        answers = [answer for answer, _ in both]
        SOLUTIONS[key] = seen_in(check, size, [solution for _, solution in both], None)
    else:
        answers = run_probe(attempt, probe, ranks)
    return beside_solution(check, attempt, size, seen_in(check, size, answers, call, rank or 0))


def beside_solution(
    check: OnRanks, attempt: Attempt, size: int, calls: list[list[Seen]]
) -> list[list[Seen]]:
    """The calls, each with what the solution gave, if the check asks for that."""
    key = (attempt.name, size)
    if check.needs_solution and key not in SOLUTIONS:
        [SOLUTIONS[key]] = run_variants(check, attempt, size, [solution_of(attempt.name)])
    if check.needs_solution:
        for call in calls:
            for one in call:
                one.solution = SOLUTIONS[key][one.call][one.rank]
    return calls


def solution_of(name: str) -> str:
    """The cell that solves the exercise."""
    module = import_module(f"ddp_workbook.exercises.{name}")
    return source.solution(Path(module.__file__).read_text(encoding="utf-8"), name)


def compare_all(check: OnRanks, attempt: Attempt, size: int, calls: list[list[Seen]]) -> None:
    """Raise NotYet for the first look that finds something wrong, then for the cost of a call."""
    for look in check.looks:
        if bad := wrong_ones(look, calls):
            raise NotYet(
                *page(
                    check,
                    attempt.name,
                    look,
                    bad[0],
                    where_to_look(check, attempt, size, look, bad[0], calls),
                    right_so_far(check, calls[: bad[0].call]),
                )
            )
    for call in calls:
        for one in call:
            refuse_changes(check, attempt.name, one)
            refuse_overwritten(check, attempt.name, one)
            refuse_too_much(check, attempt.name, one)


def where_to_look(
    check: OnRanks, attempt: Attempt, size: int, look: Look, bad: Seen, calls: list[list[Seen]]
) -> str:
    """The words for what went wrong first: of a known mistake, or of its kind, or the look's own.

    A mistake that explains everything comes first, then whether the call is right by itself, then
    two mistakes at once, then what the look's own table says, then mistakes that explain a part.
    """

    def run(texts: Sequence[str], only: int | None = None) -> list:
        tried = run_variants(check, replace(attempt), size, texts, only, seconds=3)
        return [one and beside_solution(check, attempt, size, one) for one in tried]

    reasons = Reasons(check, solution_of(attempt.name), look, bad, calls, run)
    kind = of_its_kind(look, bad)
    return (
        reasons.single()
        or ("" if look.timing_dependent else unlike_alone(check, attempt, size, look, bad))
        or ("" if kind else reasons.pair())
        or reasons.condition()
        or on_one_rank(look, bad)
        or reasons.of_this_look()
        or kind
        or worded(look.otherwise, bad)
    )


def unlike_alone(check: OnRanks, attempt: Attempt, size: int, look: Look, bad: Seen) -> str:
    """What to say of a call that went wrong after others and is right without them; else "".

    If it is also right when the whole series is made once more, it depends on chance.
    """
    if bad.call == 0 and (check.group or bad.rank == 0):
        return ""
    with contextlib.suppress(NotYet, RankFailed):
        rank = None if check.group else bad.rank
        alone = made(check, replace(attempt), size, only=(bad.call, rank))
        for one in alone[0]:
            one.again = [before for before in bad.everyone if before.rank == one.rank]
        if wrong_ones(look, alone):
            return ""
        series = wrong_ones(look, made(check, replace(attempt), size))
        same = any((one.call, one.rank) == (bad.call, bad.rank) for one in series)
        return KEPT if same else CHANCE
    return ""


def right_so_far(check: OnRanks, calls: list[list[Seen]]) -> bool:
    """Whether there are such calls, and every look finds each of them right."""
    return bool(calls) and not any(wrong_ones(look, calls) for look in check.looks)


def page(
    check: OnRanks, name: str, look: Look, seen: Seen, where_to_look: str, later: bool
) -> tuple:
    """The four sentences: called, came back, required, where to look; `later`: other calls came
    before this one, and were right.
    """
    part = next(iter(wrong_parts(look, seen)), "")
    called = said(check, name, seen.case, seen.rank, part)
    if later:
        called += f"\n(call {seen.call + 1}; the results before it were right)"
    came, required = (filled(look, seen, words, part) for words in (look.came, look.required))
    if came == required:  # the digits or elements that are shown agree
        place, one, other = first_difference(seen.value, seen.right, partial(equal, look))
        came, required = f"{came}\n{place}: {one!r}", f"{required}\n{place}: {other!r}"
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
