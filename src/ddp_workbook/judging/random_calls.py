"""After a check's own cases: calls with random arguments, compared with what the solution gives."""

import contextlib
import io
import tempfile
from dataclasses import replace
from pathlib import Path

from ddp_workbook.judging.attempts import Attempt
from ddp_workbook.judging.check import DistributedCheck, RandomCall, load
from ddp_workbook.judging.comparison import Observation
from ddp_workbook.judging.diagnosis import mismatches
from ddp_workbook.judging.in_rank import GuardedFunction, InRank
from ddp_workbook.judging.on_ranks import launch_worker
from ddp_workbook.judging.snapshots import copied
from manyranks.errors import RankFailed

NUMBER_OF_CALLS = 200


MAX_WRONG, MAX_RIGHT = 12, 48  # random calls that words must explain, too


def telling_seeds(check: DistributedCheck, attempt: Attempt) -> tuple[int, ...]:
    """Seeds of some calls that go wrong, the shortest arguments first, then of right ones.

    () if none goes wrong. A call that does not end ends the search, and is the only one.
    """
    with tempfile.NamedTemporaryFile("rb") as progress:
        worker = RandomCalls(check.name, f"{attempt.path}", progress.name)
        try:
            [seeds] = launch_worker(check, replace(attempt), worker, 1, io.StringIO())
        except RankFailed:
            if not (number := progress.read()):
                raise
            return (int(number),)
    return seeds


class RandomCalls:
    """A worker: makes the random calls with an attempt and with the solution."""

    def __init__(self, name: str, path: str, progress: str):
        self.name, self.path, self.progress = name, path, progress

    def __call__(self) -> tuple[int, ...]:
        """What `telling_seeds` returns; notes each seed before its call."""
        check = load(self.name)
        InRank(self.name, 0, path=Path(self.path)).prepare(group=False)
        attempt = GuardedFunction(check, self.path)
        wrong = []
        with open(self.progress, "r+") as file:
            for seed in range(NUMBER_OF_CALLS):
                file.seek(0)
                file.write(f"{seed}")
                file.flush()
                if goes_wrong(check, attempt, seed):
                    wrong.append(seed)
        wrong.sort(key=lambda seed: argument_length(check, seed))
        right = [seed for seed in range(NUMBER_OF_CALLS) if seed not in wrong]
        return (*wrong[:MAX_WRONG], *right[:MAX_RIGHT]) if wrong else ()


def argument_length(check: DistributedCheck, seed: int) -> int:
    """How long a reader must read to see the call."""
    return len(repr(check.arguments(RandomCall(seed), 0)))


def goes_wrong(check: DistributedCheck, attempt: GuardedFunction, seed: int) -> bool:
    """Whether the attempt raises, or gives something else than the solution."""
    case = RandomCall(seed)
    seen = []
    for function in (check.function, attempt):
        arguments = check.arguments(case, 0)
        with contextlib.suppress(Exception):
            returned = check.caller(function, *arguments) if check.caller else function(*arguments)
            actual = check.observe(returned, *arguments) if check.observe else returned
            seen.append(Observation(0, 0, case, copied(actual)))
    if len(seen) < 2:
        return True
    seen[1].solution = seen[0]
    return any(mismatches(comparison, [[seen[1]]]) for comparison in check.comparisons)
