"""The engine of the checks: has the calls made, compares, and says what is wrong first."""

import contextlib
import copy
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from itertools import pairwise

from ddp_workbook.judging.attempts import Attempt
from ddp_workbook.judging.check import CheckFailed, DistributedCheck, RandomCall
from ddp_workbook.judging.comparison import Comparison, Observation
from ddp_workbook.judging.diagnosis import (
    STILL_RUNNING,
    explain,
    fill_words,
    mismatches,
    one_rank_hint,
    type_hint,
)
from ddp_workbook.judging.guard import EVERY_PATH_RETURNS
from ddp_workbook.judging.on_ranks import Calls, run_calls, run_variants
from ddp_workbook.judging.random_calls import telling_seeds
from ddp_workbook.judging.reasons import Extent, Reasons
from ddp_workbook.judging.wording import failure_report, wrong_part
from manyranks.errors import RankFailed

MAX_SEARCH_S = 30.0  # seconds in which words are looked for; few verdicts need more than 8
SEARCHING = "… (comparing with known mistakes)"
MAX_LAUNCHES = 10  # at most, for the edited solutions of one verdict
ARGUMENTS_UNCHANGED = "the arguments stay unchanged, because the caller still needs them"
KEEPS_STATE = (
    "Made first, this call is right; after the other calls it is wrong. What does your function "
    "keep from one call to the next?"
)
KEEPS_STATE_OR_CHANCE = (
    "What does your function keep from one call to the next, or what in it depends on chance?"
)
NONDETERMINISTIC = (
    "The same call, made again, gave another result. What in your function depends on chance, or "
    "on which of the threads or ranks is faster?"
)
SET_ORDER = (
    "The ranks went through a set in different orders, so tensors met that differ in shape or "
    "dtype on the ranks. Which order is the same in every process?"
)
SHARED_MEMORY = "Do the results of two calls share memory, and which line fills it again?"
NEEDLESS_BARRIER = (
    "What does the barrier add? The collective itself already waits for the other ranks."
)
NEEDLESS_COLLECTIVE = "Each collective costs a round trip. Which of them is not needed?"
TOO_MANY_COLLECTIVES = "too many collectives"  # the key of an exercise's own words for that
OBJECT_COLLECTIVE = (
    "An object collective is two: the lengths go first, then the objects as bytes. Which tensor "
    "could hold your values?"
)


def examine_calls(
    check: DistributedCheck, attempt: Attempt, sizes: Sequence[int] | None = None
) -> str:
    """Return what the attempt has proved. Raises CheckFailed, and what `launch` raises.

    The largest world size comes first, because mistakes look alike in small ones; then the others
    run in parallel, because ranks mostly wait. Of those that are wrong, the largest is told.
    """
    largest, *others = sorted(sizes or check.sizes, reverse=True) or [0]
    examine_size(check, attempt, largest)
    interrupt = threading.Event()
    copies = {size: replace(attempt, interrupt=interrupt, on_problem=None) for size in others}
    with ThreadPoolExecutor(len(others) or 1) as pool:
        tasks = {size: pool.submit(examine_size, check, copies[size], size) for size in others}
        try:
            wait(tasks.values())
        finally:
            interrupt.set()  # either all have ended by now, or a KeyboardInterrupt is on its way
    for size, task in tasks.items():
        if error := task.exception():
            vars(attempt).update(vars(copies[size]), interrupt=attempt.interrupt)
            raise error
    if check.random_args:
        examine_random_calls(check, attempt)
    return check.on_pass


def examine_random_calls(check: DistributedCheck, attempt: Attempt) -> None:
    """Raise CheckFailed if a random call goes wrong.

    Some of them become cases, so that it gets words, and only such that explain all of these calls.
    """
    seeds = telling_seeds(check, attempt)
    if not seeds:
        return
    with_random_calls = copy.copy(check)
    with_random_calls.seeds = seeds
    examine_size(with_random_calls, attempt, 0)
    raise CheckFailed(
        check.describe_call(RandomCall(seeds[0]), 0),
        "another result, or an error, when this call came after many others",
        "the same result, whatever was called before",
        KEEPS_STATE_OR_CHANCE,
    )


def examine_size(check: DistributedCheck, attempt: Attempt, size: int) -> None:
    """Raise CheckFailed if the attempt is wrong at this world size.

    If a call raises or hangs after others, the first call is also made alone.
    """
    with tempfile.NamedTemporaryFile("rb") as progress:
        try:
            calls = run_calls(check, attempt, size, progress=progress.name)
        except (CheckFailed, RankFailed):
            if not (number := progress.read()):
                raise
            # A copy of the attempt, so that this one keeps what was printed.
            first = run_calls(check, replace(attempt), size, only=(0, None))
            if problem := first_problem(check, attempt, size, first):
                raise problem from None
            attempt.first_call_right = True
            attempt.later_call = check.describe_call(check.cases_of(size)[int(number)], 0)
            raise
    if problem := first_problem(check, attempt, size, calls):
        raise problem


def first_problem(
    check: DistributedCheck, attempt: Attempt, size: int, calls: Calls
) -> CheckFailed | None:
    """What the first comparison that fails says; then what a right call may not do."""
    for comparison in check.comparisons:
        if bad := mismatches(comparison, calls):
            before = calls[: bad[0].call]  # are there such calls, and is each of them right?
            right_so_far = before and not any(
                mismatches(other, before) for other in check.comparisons
            )
            report = partial(failure_report, check, comparison, bad[0], later=bool(right_so_far))
            if attempt.on_problem:
                attempt.on_problem(report(SEARCHING))
            attempt.words_until = time.monotonic() + MAX_SEARCH_S
            return report(where_to_look(check, attempt, size, comparison, bad[0], calls))
    for call in calls:
        for obs in call:
            if rows := forbidden_effect(check, obs):
                return CheckFailed(check.describe_call(obs.case, obs.rank), *rows)
    return None


def where_to_look(
    check: DistributedCheck,
    attempt: Attempt,
    size: int,
    comparison: Comparison,
    bad: Observation,
    calls: Calls,
) -> str:
    """The words for what went wrong first: of a known mistake, of its kind, or the comparison's.

    A mistake that explains everything comes first, then whether the call is right by itself, then
    two mistakes at once, then what the comparison's table says, then mistakes that explain a part.
    """
    run = partial(run_variants, check, replace(attempt), size, launches=MAX_LAUNCHES)
    reasons = Reasons(check, comparison, bad, calls, run)
    kind = type_hint(comparison, bad)
    return (
        reasons.best(Extent.ALL_VALUES)
        or set_order_hint(bad)
        or (
            ""
            if comparison.timing_dependent
            else state_or_chance_hint(check, attempt, size, comparison, bad, calls)
        )
        or ("" if kind else reasons.two_edits())
        or pattern_hint(comparison, bad)
        or one_rank_hint(comparison, bad)
        or reasons.best(Extent.UP_TO_FAILURE)
        or kind
        or ("" if check.network else overlapping_collective_hint(bad))  # there calls shall overlap
        or hint(comparison, bad)
    )


def hint(comparison: Comparison, bad: Observation) -> str:
    """Where to look if no mistake is known; of a dict, for its first wrong item."""
    if not isinstance(comparison.hint, Mapping):
        return fill_words(comparison.hint, bad)
    keys, _, _ = wrong_part(comparison, bad)
    return comparison.hint.get(f"{keys[0]}" if keys else "", EVERY_PATH_RETURNS)


def overlapping_collective_hint(bad: Observation) -> str:
    """What to say if a collective has started before an earlier operation was waited for."""
    collectives = [row for row in bad.communication if row["op"] not in ("send", "recv")]
    return STILL_RUNNING if any(row.get("under_way") for row in collectives) else ""


def pattern_hint(comparison: Comparison, bad: Observation) -> str:
    """The words of the first pattern in the comparison's table that matches; "" if none does."""
    for words, pattern in comparison.patterns.items():
        with contextlib.suppress(Exception):  # a value that this pattern is not about
            if pattern.matches(bad):  # a later pattern may rely on those before it
                return fill_words(words, bad)
    return ""


def set_order_hint(bad: Observation) -> str:
    """What to say if the ranks have gone through a set, and sent in different orders; else ""."""
    messages = [
        [(row["op"], row["shape"], row["dtype"]) for row in obs.communication]
        for obs in bad.all_ranks
    ]
    by_chance = any(obs.nondeterministic for obs in bad.all_ranks)
    return SET_ORDER if by_chance and any(rows != messages[0] for rows in messages) else ""


def state_or_chance_hint(
    check: DistributedCheck,
    attempt: Attempt,
    size: int,
    comparison: Comparison,
    bad: Observation,
    calls: Calls,
) -> str:
    """What to say of a call that went wrong after others and is right without them; else "".

    The function keeps something only if nothing in the series was left to chance, and the series
    gives all the same once more. One lucky repeat proves neither.
    """
    if bad.call == 0 and (check.group or bad.rank == 0):
        return ""
    with contextlib.suppress(CheckFailed, RankFailed):
        rank = None if check.group else bad.rank
        alone = run_calls(check, replace(attempt), size, only=(bad.call, rank))
        for obs in alone[0]:
            obs.repeats = [before for before in bad.all_ranks if before.rank == obs.rank]
        if mismatches(comparison, alone):
            return ""
        if any(
            obs.nondeterministic for series in (calls, alone) for call in series for obs in call
        ):
            return NONDETERMINISTIC
        again = explain(check, calls, run_calls(check, replace(attempt), size))
        return KEEPS_STATE if all(again.same_values) and again.same_effects else NONDETERMINISTIC
    return ""


def forbidden_effect(check: DistributedCheck, obs: Observation) -> tuple[str, str, str] | None:
    """What came back, is required and where to look, if a right result was come by wrongly.

    An argument has changed, a later call has changed the result, or it took too many collectives.
    """
    where = f" on rank {obs.rank}" if check.group else ""
    if obs.changed_arguments:
        return (
            f"your function changed {' and '.join(obs.changed_arguments)}{where}",
            ARGUMENTS_UNCHANGED,
            check.unchanged_hint,
        )
    if obs.overwritten:
        actual = f"the right result{where}, which a later call has changed"
        return (
            actual,
            "the result of a call stays the same, whatever is called later",
            SHARED_MEMORY,
        )
    ops = [op for op in obs.ops if op not in ("send", "recv")]
    if check.max_collectives is None or len(ops) <= check.max_collectives:
        return None
    counts = {op: ops.count(op) for op in ops}
    each = ", ".join(f"{count} {op}" for op, count in counts.items())
    objects = any(  # the lengths, then the bytes, for the same line
        a["line"] == b["line"] and (a["dtype"], b["dtype"]) == ("int64", "uint8")
        for a, b in pairwise(obs.communication)
    )
    look = (
        OBJECT_COLLECTIVE
        if objects
        else NEEDLESS_BARRIER
        if "barrier" in counts
        else check.errors.get(TOO_MANY_COLLECTIVES, NEEDLESS_COLLECTIVE)
    )
    at_most = f"at most {check.max_collectives} collective{'s' * (check.max_collectives != 1)}"
    return f"the right result, after {each} on rank {obs.rank}", at_most, look
