"""From an attempt to a verdict: runs the check, and puts into words whatever comes of it."""

import ast
import traceback
import warnings
from collections.abc import Sequence

from ddp_workbook.exercises.checking import attempts
from ddp_workbook.exercises.checking.attempts import YOUR_CELL, Attempt
from ddp_workbook.exercises.checking.catalogue import Exercise
from ddp_workbook.exercises.checking.not_yet import NotYet
from ddp_workbook.exercises.checking.source import same_code
from ddp_workbook.exercises.checking.verdict import NOT_ATTEMPTED, NOT_YET, SOLVED, Verdict
from ddp_workbook.workbench import advice
from ddp_workbook.workbench.errors import RankFailed, RanksHung, WorkbookError
from ddp_workbook.workbench.positions import Position

A_MEETING = "a collective is a meeting: every rank of the group must come"


def examine(exercise: Exercise, code: str) -> Verdict:
    """The verdict on a cell: saved first, then checked. An untouched stub is neither."""
    if same_code(code, exercise.stub):
        return _not_attempted(exercise.name)
    attempt = attempts.save(exercise.name, code)
    problem = _syntax(attempt, code)
    if problem:
        return problem
    verdict = judge(exercise, attempt)
    if verdict.kind == SOLVED:
        attempts.note_solved(attempt, verdict.title)
    return verdict


def judge(exercise: Exercise, attempt: Attempt, **choice: Sequence[int]) -> Verdict:
    """Run the exercise's check on a saved attempt; `choice` goes to the check.

    Raises LaunchRefused and LaunchInterrupted, which are not about the attempt.
    """
    name = exercise.name
    try:
        sentence = exercise.module.check(attempt, **choice)
    except NotYet as problem:
        return _not_yet(attempt, problem.rows)
    except RanksHung as hang:
        return _hangs(attempt, hang)
    except RankFailed as failure:
        return _fails(attempt, failure, getattr(exercise.module, "FOR_ERRORS", {}))
    except WorkbookError:
        raise
    except Exception as error:  # a value that the check did not foresee
        return _unforeseen(attempt, error)
    return Verdict(SOLVED, f"{name}: {sentence}", printed=attempt.printed)


def _not_attempted(name: str) -> Verdict:
    rows = []
    if path := attempts.saved(name):
        rows.append(("earlier", f"your attempt of last time is in {_short(path)}"))
    return Verdict(NOT_ATTEMPTED, f"{name}: not attempted yet", rows)


def _short(path) -> str:
    return "/".join(path.parts[-3:])


def _syntax(attempt: Attempt, code: str) -> Verdict | None:
    """The verdict on a cell that no rank could read, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(ast.parse(f"\n{code}", YOUR_CELL), YOUR_CELL, "exec")
        return None
    except SyntaxError as error:
        lines = traceback.format_exception_only(error)[1:]
        where = f"line {error.lineno}" if error.lineno else "the cell"
        rows = [(where, "".join(lines).rstrip()), ("look at", _look_at_syntax(code, error))]
    except (ValueError, RecursionError, MemoryError) as error:
        rows = [("came back", str(error) or type(error).__name__), ("look at", "the whole cell")]
    return Verdict(NOT_YET, f"Not yet: {attempt.name} is no valid Python", rows)


def _look_at_syntax(code: str, error: SyntaxError) -> str:
    line = code.splitlines()[error.lineno - 2] if error.lineno and error.lineno > 1 else ""
    if line.lstrip().startswith(("%", "!", "?")):
        return "Only Python can stand in an exercise's cell, no % and no ! commands."
    return "This line, or a bracket or quotation mark that was opened before it."


def _not_yet(attempt: Attempt, rows: list[tuple[str, str]]) -> Verdict:
    return Verdict(NOT_YET, f"Not yet: {attempt.name}{_at(attempt)}", rows, attempt.printed)


def _at(attempt: Attempt) -> str:
    if not attempt.ranks:
        return ""
    return " at 1 rank" if attempt.ranks == 1 else f" at {attempt.ranks} ranks"


def _hangs(attempt: Attempt, hang: RanksHung) -> Verdict:
    """Where each rank stands, in the reader's own lines."""
    waits = any(place.call for place in hang.positions)
    verb = "hangs" if waits else "does not end"
    title = f"Not yet: {attempt.name} {verb}{_at(attempt)} (stopped after {attempt.seconds:g} s)"
    rows = _places(hang.positions, attempt) + _missed(hang)
    look = "What ends the loop on this line, and does it ever happen?"
    if waits:
        look = advice.for_hang(hang.positions, bool(hang.missed)) or A_MEETING
    return Verdict(NOT_YET, title, [*rows, ("look at", look)], attempt.printed)


def _places(positions: Sequence[Position], attempt: Attempt) -> list[tuple[str, str]]:
    """A row for each rank; without a group there is only one process, and it is no rank."""
    rows = []
    waits = any(place.call for place in positions)
    for place in positions:
        doing = (
            "has returned without it" if waits and place.doing == "has returned" else place.doing
        )
        label = f"rank {place.rank}" if attempt.ranks else "it"
        rows.append((label, "\n".join(filter(None, [doing, _line(place)]))))
    return rows


def _missed(failure: RankFailed) -> list[tuple[str, str]]:
    return [("", text.replace(f"{YOUR_CELL}:", "your line ")) for text in failure.missed]


def _line(place: Position) -> str:
    """ "your line 6: dist.all_gather(parts, x)" """
    if not place.file:
        return ""
    file_and_line, _, text = place.place.partition("  ")
    file, _, line = file_and_line.rpartition(":")
    where = f"your line {line}" if file == YOUR_CELL else file_and_line
    return f"{where}: {text}"


def _fails(attempt: Attempt, failure: RankFailed, known: dict[str, str]) -> Verdict:
    """A rank raised, left, or died; `known` are the exercise's own words for some errors."""
    if failure.kind == "NotYet" and len(failure.arguments) == 4:
        return _not_yet(attempt, NotYet(*failure.arguments).rows)
    if failure.missed or len(failure.positions) > 1:
        return _misses(attempt, failure)
    what = f"raises {failure.kind}" if failure.kind else "ends its process"
    title = f"Not yet: {attempt.name} {what}{_at(attempt)}"
    rows = [("came back", failure.reason)]
    place = failure.positions[0] if failure.positions else None
    if place and place.file:
        label = f"rank {failure.rank}" if attempt.ranks else "in"
        rows.append((label, _line(place)))
    own = next((text for words, text in known.items() if words in failure.reason), "")
    rows.append(("look at", own or _look_at_failure(failure, place)))
    return Verdict(NOT_YET, title, rows, attempt.printed)


def _look_at_failure(failure: RankFailed, place: Position | None) -> str:
    if failure.kind == "NotImplementedError":
        return "The line of the stub that raises it is still there: put your lines in its place."
    if failure.kind == "NameError":
        return "Is the name spelt right? Your cell knows only what it imports and defines itself."
    if not failure.kind:
        given = advice.for_death(failure.returncode, place.call if place else "")
        return given or "A function that is called must return to its caller."
    return advice.for_error(failure.kind, failure.reason) or "The error names the line."


def _misses(attempt: Attempt, failure: RankFailed) -> Verdict:
    """A rank waited for one that had gone: a hang, seen before its time was up."""
    title = f"Not yet: {attempt.name} hangs{_at(attempt)} (one rank waits for another that is gone)"
    rows = _places(failure.positions, attempt) + _missed(failure)
    return Verdict(NOT_YET, title, [*rows, ("look at", A_MEETING)], attempt.printed)


def _unforeseen(attempt: Attempt, error: Exception) -> Verdict:
    """The check itself stumbled over what came back."""
    rows = [
        ("called", f"{attempt.name}, as the task says"),
        ("came back", f"something that the check cannot use ({type(error).__name__}: {error})"),
        ("required", "a value of the kind that the docstring of the stub names"),
        ("look at", "Do you return what the docstring says, on every path through the function?"),
    ]
    return Verdict(NOT_YET, f"Not yet: {attempt.name}{_at(attempt)}", rows, attempt.printed)
