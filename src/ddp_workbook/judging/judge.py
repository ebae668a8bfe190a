"""From an attempt to a verdict: runs the check, and puts its outcome into words."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ddp_workbook.judging import advice, attempts
from ddp_workbook.judging.attempts import YOUR_CELL, Attempt
from ddp_workbook.judging.catalogue import Exercise
from ddp_workbook.judging.check import CheckFailed
from ddp_workbook.judging.engine import examine_calls
from ddp_workbook.judging.source import same_code
from ddp_workbook.judging.syntax import syntax_error_rows
from ddp_workbook.judging.verdict import (
    NOT_ATTEMPTED,
    NOT_YET,
    SOLVED,
    UNDECIDED,
    Verdict,
)
from manyranks.diagnostics.advice import for_hang
from manyranks.diagnostics.evidence import State
from manyranks.diagnostics.failure_report import handled_error_lines
from manyranks.diagnostics.positions import Position
from manyranks.errors import HangUndecided, Proof, RankFailed, RanksHung, WorkbookError

INSIDE_TORCH = re.compile(r"\[(?:enforce fail at )?[^\]\s]+:\d+\] ?")  # a line of its C++ code
PROOFS = {  # how the check knows that an attempt will not end
    Proof.TIME: "stopped after {seconds:g} s",
    Proof.DEADLOCK: "all ranks wait, and nothing has moved for {seconds:.1f} s",
    Proof.IDLE: "nothing has moved for {seconds:.1f} s",
    Proof.PROCESSOR_TIME: "after {seconds:.1f} s of processor time",
}
UNDECIDED_ADVICE = "Your answer could not be judged. Run the cell again when less is running here."
FIRST_WAS_RIGHT = "the first call was right; this is a later one, with other values"
STATES_OUTSIDE = {  # a worker's state, in words for the reader's function
    State.WORKING: "is outside your function, in the check's own lines",
    State.STARTING: "has not reached your function",
}


def examine(
    exercise: Exercise, code: str, show: Callable[[Verdict], None] | None = None
) -> Verdict:
    """The verdict on a cell, which is saved and then checked; an untouched stub is neither.

    If something is wrong, `show` gets the verdict before there are words for where to look.
    """
    name = exercise.name
    code = code.removeprefix("\ufeff")  # byte order mark
    if same_code(code, exercise.stub):
        return _not_attempted_verdict(name)
    attempt = attempts.save(name, code)
    if show:
        attempt.on_problem = lambda problem: show(_not_yet_verdict(attempt, problem.rows))
    verdict = judge_saved(exercise, attempt, code)
    if verdict.kind == SOLVED:
        attempts.note_solved(attempt, verdict.title)
    return verdict


def judge_saved(exercise: Exercise, attempt: Attempt, code: str) -> Verdict:
    """The verdict on an attempt whose file holds the cell `code`, which may not be valid Python."""
    if problem := syntax_error_rows(code):
        return Verdict(NOT_YET, f"Not yet: {exercise.name} is not valid Python", problem)
    return judge(exercise, attempt)


def judge(exercise: Exercise, attempt: Attempt, sizes: Sequence[int] | None = None) -> Verdict:
    """Run the exercise's check on a saved attempt, at all world sizes or at these.

    Raises LaunchRefused and LaunchInterrupted, which say nothing about the attempt.
    """
    name = exercise.name
    try:
        sentence = examine_calls(exercise.check, attempt, sizes)
    except CheckFailed as problem:
        return _not_yet_verdict(attempt, problem.rows)
    except RanksHung as hang:
        return _hang_verdict(attempt, hang, exercise.check.errors)
    except HangUndecided as busy:
        return _undecided_verdict(attempt, busy)
    except RankFailed as failure:
        return _failure_verdict(attempt, failure, exercise.check.errors)
    except WorkbookError:
        raise
    except Exception as error:  # a value that the check did not foresee
        return _unforeseen_verdict(attempt, error)
    return Verdict(SOLVED, f"{name} is solved: {sentence}", printed=attempt.printed)


def _not_attempted_verdict(name: str) -> Verdict:
    rows = []
    if path := attempts.latest_attempt(name):
        rows.append(("earlier", f"your last attempt is in {_short(path)}"))
    return Verdict(NOT_ATTEMPTED, f"{name}: not attempted yet", rows)


def _short(path: Path) -> str:
    return "/".join(path.parts[-3:])


def _not_yet_verdict(
    attempt: Attempt, rows: list[tuple[str, str]], verb: str = "", note: str = ""
) -> Verdict:
    at = f"at {attempt.ranks} rank{'s' * (attempt.ranks > 1)}" if attempt.ranks else ""
    title = " ".join(filter(None, [f"Not yet: {attempt.name}", verb, at, note]))
    if attempt.first_call_right:
        later = [("called", attempt.later_call)] if "called" not in dict(rows) else []
        rows = [("before", FIRST_WAS_RIGHT), *later, *rows]
    return Verdict(NOT_YET, title, rows, attempt.printed)


def _hang_verdict(attempt: Attempt, hang: RanksHung, known: Mapping[str, str]) -> Verdict:
    """Where each rank stands, in the reader's own lines, and how the check knows."""
    waits = bool(hang.mismatches) or any(place.communicates for place in hang.positions)
    rows = _position_rows(hang.positions, attempt, waits) + _mismatch_rows(hang)
    verb = "hangs" if waits else "does not end"
    look = known.get(verb) or for_hang(hang.positions, hang.mismatches)
    proof = PROOFS[hang.proof].format(seconds=hang.seconds)
    rows += [("look at", look)] if look else []
    return _not_yet_verdict(attempt, rows, verb, f"({proof})")


def _undecided_verdict(attempt: Attempt, busy: HangUndecided) -> Verdict:
    """The verdict if the machine was too busy: nothing is known about the answer."""
    title = f"{attempt.name}: this machine is too busy to tell (after {busy.seconds:g} s)"
    return Verdict(UNDECIDED, title, [("look at", UNDECIDED_ADVICE)], attempt.printed)


def _position_rows(
    positions: Sequence[Position], attempt: Attempt, waits: bool
) -> list[tuple[str, str]]:
    """A row for each rank; without a group there is one process, which is not a rank."""
    rows = []
    for place in positions:
        text = f"{STATES_OUTSIDE.get(place.state, place.doing)}\n{_line_text(place)}"
        if waits and place.state is State.RETURNED:
            text = "has returned without it"
        elif place.file and not place.communicates:
            text = f"is at {_line_text(place)}"
        elif place.file and not place.call:  # inside the wait of a Work
            text = f"waits at {_line_text(place)}"
        rows.append((f"rank {place.rank}" if attempt.ranks else "it", text))
    return rows + [("", _as_cell_line(error)) for error in handled_error_lines(positions)]


def _mismatch_rows(failure: RankFailed) -> list[tuple[str, str]]:
    return [("", _as_cell_line(str(mismatch))) for mismatch in failure.mismatches]


def _as_cell_line(text: str) -> str:
    return text.replace(f"{YOUR_CELL}:", "your line ")


def _line_text(place: Position) -> str:
    """ "your line 6: dist.all_gather(parts, x)" """
    if not place.file:
        return ""
    file_and_line, _, text = place.place.partition("  ")
    file, _, line = file_and_line.rpartition(":")
    where = f"your line {line}" if file == YOUR_CELL else file_and_line
    return f"{where}: {text}"


def _failure_verdict(attempt: Attempt, failure: RankFailed, known: Mapping[str, str]) -> Verdict:
    """A rank raised, exited or died; `known` are the exercise's own words for some errors."""
    if failure.kind == "CheckFailed" and len(failure.arguments) == 4:
        return _not_yet_verdict(attempt, CheckFailed(*failure.arguments).rows)
    look = ("look at", advice.for_failure(failure, known, attempt.ranks > 0, attempt.printed))
    if failure.mismatches or len(failure.positions) > 1:  # a hang, seen before its time was up
        places = failure.positions
        look = ("look at", known.get("hangs") or for_hang(places, failure.mismatches))
        rows = _position_rows(places, attempt, True) + _mismatch_rows(failure)
        note = "(a rank waits for another in vain)"
        return _not_yet_verdict(attempt, [*rows, look], "hangs", note)
    who = f"rank {failure.rank}" if attempt.ranks else "it"
    place = failure.positions[0] if failure.positions else None
    stands = [(who, _line_text(place))] if place and place.file else []
    if failure.kind:
        rows = [("came back", INSIDE_TORCH.sub("", failure.reason)), *stands]
        return _not_yet_verdict(attempt, [*rows, look], f"raises {failure.kind}")
    rows = [("came back", f"{who} {failure.reason}"), *stands]
    return _not_yet_verdict(attempt, [*rows, look], "ends its process")


def _unforeseen_verdict(attempt: Attempt, error: Exception) -> Verdict:
    """The check itself failed on what came back."""
    rows = [
        ("called", f"{attempt.name}, as the task says"),
        ("came back", f"something that the check cannot use ({type(error).__name__}: {error})"),
        ("required", "a value of the kind that the docstring of the stub names"),
        ("look at", "Does every path through the function return what the docstring says?"),
    ]
    return _not_yet_verdict(attempt, rows)
