"""The reports of a failed launch: which rank, which line, what it means, where to look.

Each function takes the Evidence of all ranks, in rank order.
"""

import re
import signal
from collections.abc import Sequence
from dataclasses import replace

from manyranks.diagnostics import advice
from manyranks.diagnostics.evidence import Evidence, State
from manyranks.diagnostics.handled_errors import ThreadError
from manyranks.diagnostics.mismatches import Kind, Mismatch, mismatches, ranks_in_words
from manyranks.diagnostics.positions import (
    Position,
    line_in_words,
    position,
    position_from_stack,
)
from manyranks.errors import HangUndecided, Proof, RankFailed, RanksHung

MAX_ROWS = 16
MAX_TITLE_CHARS = 200  # characters of an error's text in the first line; the traceback has it all
HANG_TITLES = {
    Proof.TIME: "{who} did not finish within {seconds:g} s and {were} stopped.",
    Proof.DEADLOCK: "{who} waited for other ranks, and nothing moved for {seconds:.1f} s.",
    Proof.IDLE: "{who} did not finish, and nothing moved for {seconds:.1f} s.",
    Proof.PROCESSOR_TIME: "{who} did not finish; rank {rank} computed for {seconds:.1f} s "
    "of processor time.",
}
ARE = {  # (several ranks, which have ended) -> verb
    (False, False): "is",
    (True, False): "are",
    (False, True): "was",
    (True, True): "were",
}
TOO_BUSY = (
    "This machine is too busy to tell whether the ranks hang or are only slow. They had not "
    "finished after {seconds:g} s, and were stopped.\nTry again when less is running here."
)
ABORT_CODE = -signal.SIGABRT  # what gloo does to a rank whose peer sends something of another size
EXIT_WITH_CODE = re.compile(r"SystemExit: -?\d+$")
MAX_OUTPUT_LINES = 3  # lines shown of what a rank printed before it left
SOURCE = re.compile(r"\[/\S+\.(?:cc|cpp|h|cu):\d+\] ?")  # a line of PyTorch's own code


def first_to_fail(ranks: Sequence[Evidence]) -> Evidence:
    """The rank to blame, of which at least one has failed."""
    failures = [rank for rank in ranks if rank.failed]
    return min(failures, key=lambda rank: (not rank.end.primary, rank.end.time))


def failure(ranks: Sequence[Evidence]) -> RankFailed:
    """The error for a launch in which a rank did not return; it blames the first to fail."""
    first = first_to_fail(ranks)
    return (_python_failure if first.end.ending is State.FAILED else _death_failure)(first, ranks)


def hang(
    ranks: Sequence[Evidence],
    seconds: float,
    proof: Proof = Proof.TIME,
    rank: int | None = None,
) -> RanksHung:
    """The error for a launch that ran out of time, or is proven to hang.

    `seconds` is the measured time, and `rank` the rank whose processor time it is; see RanksHung.
    """
    late = sum(rank.outcome is None for rank in ranks)
    who = "The rank" if len(ranks) == 1 else f"{late} of {len(ranks)} ranks"
    were = "was" if late == 1 else "were"
    title = HANG_TITLES[proof].format(who=who, were=were, seconds=seconds, rank=rank)
    places, differences, page = _page(ranks, title, by_time=proof is Proof.TIME)
    return RanksHung(
        page,
        proof=proof,
        seconds=seconds,
        rank=rank,
        reason=title,
        positions=places,
        mismatches=differences,
    )


def too_busy(seconds: float) -> HangUndecided:
    """The error for a launch that neither ended nor proved to hang in `seconds`."""
    return HangUndecided(TOO_BUSY.format(seconds=seconds), seconds=seconds)


def positions_page(ranks: Sequence[Evidence], title: str) -> str:
    """`title`, where each rank stands, which calls do not match, and advice."""
    return _page(ranks, title)[2]


def _page(
    ranks: Sequence[Evidence], title: str, by_time: bool = False
) -> tuple[list[Position], list[Mismatch], str]:
    """The places, what does not match, and the page; `by_time` means that the time was up."""
    places = [position(rank) for rank in ranks]
    differences = mismatches(_records(ranks), places)
    lines = [title, *_rows(places), *_thread_error_rows(ranks)]
    lines += [f"  {mismatch}" for mismatch in differences]
    look_at = advice.for_hang(places, differences)
    if by_time and not differences and not any(place.communicates for place in places):
        look_at = f"{look_at} {advice.TAKE_LONGER}".lstrip()
    return places, differences, "\n".join(lines + _look_at(look_at))


def _rows(places: list[Position]) -> list[str]:
    width = max((len(place.doing) for place in places), default=0)
    rows = [f"  rank {p.rank:<2} {p.doing:<{width}}  {p.place}".rstrip() for p in places]
    more = len(rows) - MAX_ROWS
    if more > 0:
        rows[MAX_ROWS:] = [f"  … and {more} more ranks"]
    return rows + [_indent(error) for error in handled_error_lines(places)]


def handled_error_lines(places: Sequence[Position]) -> list[str]:
    """Each error that ranks are handling, and on a second line where it was raised."""
    by_error: dict[tuple, list[int]] = {}
    for place in places:
        if error := place.handled_error:
            what = (place.ended, error.reason, error.file, error.line)
            by_error.setdefault(what, []).append(place.rank)
    return [
        f"{ranks_in_words(ranks).capitalize()} {ARE[len(ranks) > 1, ended]} handling "
        f"{_first_line(reason)}\n  raised at {line_in_words(file, line)}"
        for (ended, reason, file, line), ranks in by_error.items()
    ]


def _thread_error_rows(ranks: Sequence[Evidence]) -> list[str]:
    """Each error that ended a thread of a rank's, and on a second line where it was raised."""
    by_error: dict[ThreadError, list[int]] = {}
    for rank in ranks:
        if rank.thread_error:
            by_error.setdefault(rank.thread_error, []).append(rank.rank)
    return [
        _indent(
            f"{'Threads' if len(them) > 1 else 'A thread'} of {ranks_in_words(them)} ended by "
            f"{_first_line(error.reason)}\n  raised at {line_in_words(error.file, error.line)}"
        )
        for error, them in by_error.items()
    ]


def _first_line(reason: str) -> str:
    text = SOURCE.sub("", reason.splitlines()[0])
    return text if len(text) <= MAX_TITLE_CHARS else text[: MAX_TITLE_CHARS - 1] + "…"


def _records(ranks: Sequence[Evidence]) -> dict[int, dict]:
    return {rank.rank: rank.record for rank in ranks if rank.record}


def _python_failure(first: Evidence, ranks: Sequence[Evidence]) -> RankFailed:
    error = first.end.error
    # If a result cannot be sent, the title says everything; no line of the reader's raised it.
    lines = [_title(first, ranks)]
    if not error["unsendable"]:
        lines.append(_indent(error["traceback"]))
    others = [rank for rank in ranks if rank is not first]
    lines += _also(
        sum(rank.end.error.get("reason") == error["reason"] for rank in others if rank.failed)
    )
    own = replace(position_from_stack(first, error["frames"]), handled_error=error["handled_error"])
    places, differences, transfer = [own], [], ""
    if error["waited"]:
        other_positions = [position(rank) for rank in others]
        differences = mismatches(_records(ranks), other_positions, failed=True)
        transfer = advice.PAIRS if advice.only_transfers([own], differences) else ""
        lines += (
            _rows(other_positions)
            + _thread_error_rows(ranks)
            + [f"  {mismatch}" for mismatch in differences]
        )
        places = sorted([*places, *other_positions], key=lambda place: place.rank)
    output = _last_output(first) if EXIT_WITH_CODE.match(error["reason"]) else []
    lines += [f"  {'it said' if i == 0 else '':<10}{line}" for i, line in enumerate(output)]
    kinds = {mismatch.kind for mismatch in differences}
    unlike_tensors = advice.UNLIKE_TENSORS if Kind.TENSORS in kinds else ""
    sentence = (
        advice.for_handled(places)
        or advice.for_exit(output)
        or unlike_tensors
        or transfer
        or advice.for_error(error["type"], error["reason"], own.file)
    )
    lines += _look_at(sentence)
    return RankFailed(
        "\n".join(lines),
        rank=first.rank,
        reason=error["reason"],
        kind=error["type"],
        arguments=error["arguments"],
        traceback=error["traceback"],
        positions=places,
        mismatches=differences,
    )


def _last_output(rank: Evidence) -> list[str]:
    """The last lines that a rank printed: those of its parser's usage, or a few."""
    lines = [line.rstrip() for line in rank.last_lines if line.strip()]
    starts = [number for number, line in enumerate(lines) if advice.USAGE.match(line)]
    return lines[starts[-1] :] if starts else lines[-MAX_OUTPUT_LINES:]


def _title(first: Evidence, ranks: Sequence[Evidence]) -> str:
    """One line: which rank failed, and how."""
    who, error = f"Rank {first.rank} (of {len(ranks)})", first.end.error
    text = _first_line(error["reason"])
    if error["unsendable"]:
        return f"{who}: its result cannot be sent back. {text.removeprefix(error['type'] + ': ')}"
    returned_ranks = [rank.rank for rank in ranks if rank.returned]
    if error["lost_peer"] and returned_ranks:
        peers = (
            f"rank {returned_ranks[0]}"
            if len(returned_ranks) == 1
            else f"ranks {', '.join(map(str, returned_ranks))}"
        )
        return f"{who} waited for a rank that had left: {peers} had already returned."
    if error["lost_peer"]:
        return f"{who} lost the connection to another rank."
    return f"{who} failed: {text}"


def _death_failure(first: Evidence, ranks: Sequence[Evidence]) -> RankFailed:
    outcome = first.end
    how = exit_status_in_words(outcome.returncode)
    sentence = ""
    if outcome.program:
        how = f"was replaced by another program ({outcome.program})"
        sentence = advice.USE_SUBPROCESS
    lines = [f"Rank {first.rank} (of {len(ranks)}) {how}."]
    place = _death_position(first)
    if place and place.file:
        where = "at       " if outcome.at_crash else "the worker stood at"
        lines.append(f"  {where} {place.place}")
    others = [rank for rank in ranks if rank is not first]
    lines += _also(sum(_death(rank) == _death(first) for rank in others))
    for rank in others:
        if _death(rank) not in (None, _death(first)):
            lines.append(
                f"  also      rank {rank.rank} {exit_status_in_words(rank.end.returncode)}"
            )
    if outcome.returncode == ABORT_CODE and place and place.communicates:
        other_positions = []  # where they stand, or stood when they ended
        for rank in others:
            frames = (rank.end.error.get("frames") or rank.stack) if rank.failed else None
            other_positions.append(position_from_stack(rank, frames) if frames else position(rank))
        if {(p.file, p.line) for p in other_positions if p.file} - {(place.file, place.line)}:
            lines += _rows(other_positions)
            sentence = advice.TWO_CALLS
    sentence = sentence or advice.for_death(outcome.returncode, place.call if place else "")
    return RankFailed(
        "\n".join(lines + _look_at(sentence)),
        rank=first.rank,
        reason=how,
        returncode=outcome.returncode,
        positions=[place] if place else [],
    )


def _death_position(rank: Evidence) -> Position | None:
    return position_from_stack(rank) if rank.stack else None


def _death(rank: Evidence) -> tuple | None:
    """How and where a rank died, for comparison; None if it did not die."""
    if not rank.failed or rank.end.ending is not State.DIED:
        return None
    place, outcome = _death_position(rank), rank.end
    where = place and (place.file, place.line)
    return outcome.returncode, outcome.program, outcome.at_crash, where


def _also(others: int) -> list[str]:
    return [f"  also      the same on {others} other rank{'s' * (others > 1)}"] if others else []


def exit_status_in_words(code: int | None) -> str:
    """An exit status in words."""
    if code is None:
        return "closed its connection without ending"
    if code >= 0:
        return f"exited with exit code {code} without returning"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _look_at(sentence: str, *rows: str) -> list[str]:
    return [f"  look at   {sentence}", *(f"  {row}" for row in rows)] if sentence else []


def _indent(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())
