"""The pages that a failed launch shows: which rank, which line, what it means, where to look."""

import signal

from ddp_workbook.workbench import advice
from ddp_workbook.workbench.errors import RankFailed, RanksHung
from ddp_workbook.workbench.meetings import disagreements
from ddp_workbook.workbench.positions import crash_stack, position, standing

MOST_ROWS = 16


def failure(handles: list) -> RankFailed:
    """The error for a launch in which at least one rank did not return; it blames the first to fail."""
    failed = [h for h in handles if h.outcome and h.outcome.kind != "returned"]
    first = min(failed, key=lambda h: (not h.outcome.primary, h.outcome.time))
    if first.outcome.kind == "raised":
        return _raised(first, handles)
    return _died(first, handles)


def hang(handles: list, timeout: float) -> RanksHung:
    """The error for a launch that ran out of time."""
    late = sum(handle.outcome is None for handle in handles)
    who = "The rank" if len(handles) == 1 else f"{late} of {len(handles)} ranks"
    title = (
        f"{who} did not finish within {timeout:g} s and {'was' if late == 1 else 'were'} stopped."
    )
    return RanksHung(
        positions_page(handles, title), [position(handle) for handle in handles], reason=title
    )


def positions_page(handles: list, title: str) -> str:
    """`title`, then where each rank stands, which collective who did not enter, and a word of advice."""
    places = [position(handle) for handle in handles]
    width = max((len(place.doing) for place in places), default=0)
    lines = [
        title,
        *(f"  rank {p.rank}  {p.doing:<{width}}  {p.place}".rstrip() for p in places[:MOST_ROWS]),
    ]
    if len(places) > MOST_ROWS:
        lines.append(f"  … and {len(places) - MOST_ROWS} more ranks")
    trails = {handle.rank: handle.trail for handle in handles if handle.trail}
    found = disagreements(trails, places)
    lines += [f"  {sentence}" for sentence in found]
    lines += _look_at(advice.for_hang(places, bool(found)))
    return "\n".join(lines)


def _raised(first, handles: list) -> RankFailed:
    error = first.outcome.error
    title = f"Rank {first.rank} of {len(handles)} failed: {error['reason'].splitlines()[0]}"
    lines = [title, _indent(error["traceback"])]
    same = [
        h.rank
        for h in handles
        if h is not first
        and h.outcome
        and h.outcome.kind == "raised"
        and h.outcome.error["reason"] == error["reason"]
    ]
    if same:
        lines.append(
            f"  also      the same on {len(same)} other rank{'s' if len(same) > 1 else ''}"
        )
    if error["lost_peer"]:
        lines += _who_had_left(first, handles)
    lines += _look_at(advice.for_error(error["type"], error["reason"]))
    return RankFailed(
        "\n".join(lines), rank=first.rank, reason=error["reason"], traceback=error["traceback"]
    )


def _who_had_left(first, handles: list) -> list[str]:
    """A lost connection without another failure: which rank had returned, and what it did not enter."""
    gone = [h.rank for h in handles if h.outcome and h.outcome.kind == "returned"]
    if not gone:
        return []
    lines = [
        f"  why       rank{'s' if len(gone) > 1 else ''} {', '.join(map(str, gone))} had already returned"
    ]
    trails = {h.rank: h.trail for h in handles if h.trail}
    return lines + [f"            {sentence}" for sentence in disagreements(trails, [])]


def _died(first, handles: list) -> RankFailed:
    code = first.outcome.returncode
    how = how_it_ended(code)
    lines = [f"Rank {first.rank} of {len(handles)} {how}."]
    frames = crash_stack(first)
    place = standing(first.rank, frames) if frames else None
    if place and place.file:
        lines.append(f"  at        {place.place}")
    lines += _look_at(advice.for_death(code, place.call if place else ""))
    return RankFailed("\n".join(lines), rank=first.rank, reason=how, returncode=code)


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
    return "\n".join(f"  {line}" for line in text.splitlines())
