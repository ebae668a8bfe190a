"""The pages that a failed launch shows: which rank, which line, what it means, where to look."""

import re
import signal

from ddp_workbook.diagnostics import advice
from ddp_workbook.diagnostics.mismatches import disagreements
from ddp_workbook.diagnostics.positions import Position, crash_stack, position, standing
from ddp_workbook.errors import RankFailed, RanksHung

MOST_ROWS = 16
LONGEST_TITLE = 200  # characters of an error's text in the first line; the traceback has it all
SOURCE = re.compile(r"\[/\S+\.(?:cc|cpp|h|cu):\d+\] ?")  # where in PyTorch's own code it was raised


def first_to_fail(handles: list):
    """The handle to blame; None while no rank has failed."""
    failed = [h for h in handles if h.outcome and h.outcome.kind != "returned"]
    return min(failed, key=lambda h: (not h.outcome.primary, h.outcome.time), default=None)


def failure(handles: list) -> RankFailed:
    """The error for a launch in which a rank did not return; it blames the first to fail."""
    first = first_to_fail(handles)
    return (_raised if first.outcome.kind == "raised" else _died)(first, handles)


def hang(handles: list, timeout: float) -> RanksHung:
    """The error for a launch that ran out of time."""
    late = sum(handle.outcome is None for handle in handles)
    who = "The rank" if len(handles) == 1 else f"{late} of {len(handles)} ranks"
    were = "was" if late == 1 else "were"
    title = f"{who} did not finish within {timeout:g} s and {were} stopped."
    places = [position(handle) for handle in handles]
    found = disagreements(_trails(handles), places)
    page = positions_page(handles, title)
    return RanksHung(page, reason=title, positions=places, missed=found)


def positions_page(handles: list, title: str) -> str:
    """`title`, where each rank stands, which collective who did not enter, and a word of advice."""
    places = [position(handle) for handle in handles]
    found = disagreements(_trails(handles), places)
    lines = [title, *_rows(places), *(f"  {sentence}" for sentence in found)]
    return "\n".join(lines + _look_at(advice.for_hang(places, bool(found))))


def _rows(places: list[Position]) -> list[str]:
    width = max((len(place.doing) for place in places), default=0)
    rows = [f"  rank {p.rank:<2} {p.doing:<{width}}  {p.place}".rstrip() for p in places]
    more = len(rows) - MOST_ROWS
    return rows if more <= 0 else [*rows[:MOST_ROWS], f"  … and {more} more ranks"]


def _trails(handles: list) -> dict[int, dict]:
    return {handle.rank: handle.trail for handle in handles if handle.trail}


def _raised(first, handles: list) -> RankFailed:
    error = first.outcome.error
    # Of a result that cannot be sent the title says it all; no line of the reader's raised it.
    lines = [_title(first, handles)] + [_indent(error["traceback"])] * (not error["unsendable"])
    same = sum(
        h is not first and bool(h.outcome) and h.outcome.error.get("reason") == error["reason"]
        for h in handles
    )
    if same:
        lines.append(f"  also      the same on {same} other rank{'s' if same > 1 else ''}")
    places, missed = [standing(first.rank, error["frames"])], []
    if error["waited"]:
        others = [position(handle) for handle in handles if handle is not first]
        missed = disagreements(_trails(handles), others, failed=True)
        lines += _rows(others) + [f"  {words}" for words in missed]
        places = sorted([*places, *others], key=lambda place: place.rank)
    lines += _look_at(advice.for_error(error["type"], error["reason"]))
    return RankFailed(
        "\n".join(lines),
        rank=first.rank,
        reason=error["reason"],
        kind=error["type"],
        arguments=error["arguments"],
        traceback=error["traceback"],
        positions=places,
        missed=missed,
    )


def _title(first, handles: list) -> str:
    """One line: who failed, and how, in words where it is a known way."""
    who, error = f"Rank {first.rank} of {len(handles)}", first.outcome.error
    text = SOURCE.sub("", error["reason"].splitlines()[0])
    if error["unsendable"]:
        return f"{who}: its result cannot be sent back. {text.removeprefix('Unsendable: ')}"
    gone = [h.rank for h in handles if h.outcome and h.outcome.kind == "returned"]
    if error["lost_peer"] and gone:
        ranks = f"rank {gone[0]}" if len(gone) == 1 else f"ranks {', '.join(map(str, gone))}"
        return f"{who} waited for a rank that had gone: {ranks} had already returned."
    if error["lost_peer"]:
        return f"{who} lost the connection to another rank."
    text = text if len(text) <= LONGEST_TITLE else text[: LONGEST_TITLE - 1] + "…"
    return f"{who} failed: {text}"


def _died(first, handles: list) -> RankFailed:
    code = first.outcome.returncode
    how = how_it_ended(code)
    lines = [f"Rank {first.rank} of {len(handles)} {how}."]
    frames = crash_stack(first)
    place = standing(first.rank, frames) if frames else None
    if place and place.file:
        lines.append(f"  at        {place.place}")
    sentence = advice.for_death(code, place.call if place else "", first.started)
    return RankFailed(
        "\n".join(lines + _look_at(sentence)),
        rank=first.rank,
        reason=how,
        returncode=code,
        positions=[place] if place else [],
    )


def how_it_ended(code: int | None) -> str:
    """An exit status as words."""
    if code is None:
        return "closed its connection without ending"
    if code >= 0:
        return f"left the process with exit code {code}, without returning"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _look_at(sentence: str) -> list[str]:
    return [f"  look at   {sentence}"] if sentence else []


def _indent(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())
