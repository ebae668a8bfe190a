"""What ranks hold before and after a collective: the numbers, their text, and their origins."""

import itertools
from collections.abc import Sequence
from typing import Any

MOST_RANKS = 8  # as many as have a colour of their own
LARGEST = 1e7  # whole numbers below it are shown with all their digits

Row = list[list[float]]  # what a rank holds: its tensors' numbers, a list a tensor


def held(value: Any) -> Row:
    """Tensors or numbers, one or a list of them, or None, as lists of numbers."""
    if value is None:
        return []
    if isinstance(value, int | float):
        return [[value]]
    if not isinstance(value, list | tuple):
        return [value.detach().cpu().flatten().tolist()]
    if value and all(isinstance(part, int | float) for part in value):
        return [list(value)]
    return [piece for part in value for piece in held(part)]


def before_and_after(moved: Sequence) -> tuple[list[Row], list[Row]]:
    """Both sides of what `launch` returned for a worker that returns (before, after).

    Raises ValueError for more ranks than have colours of their own.
    """
    if len(moved) > MOST_RANKS:
        raise ValueError(f"A picture shows up to {MOST_RANKS} ranks, these are {len(moved)}.")
    return [held(before) for before, _ in moved], [held(after) for _, after in moved]


def origins(before: Sequence[Row]) -> dict[float, frozenset[int]]:
    """The ranks behind every number that one rank held or that is a sum over ranks.

    A sum adds the numbers at the same place of several ranks. A number with two possible origins is
    left out; a rank's own number takes precedence over a sum.
    """
    rows = [list(itertools.chain(*row)) for row in before]
    own: dict[float, set] = {}
    sums: dict[float, set] = {}
    for rank, row in enumerate(rows):
        for number in row:
            own.setdefault(number, set()).add(frozenset([rank]))
    for place in range(max(map(len, rows), default=0)):
        there = [rank for rank, row in enumerate(rows) if place < len(row)]
        for count in range(2, len(there) + 1):
            for ranks in itertools.combinations(there, count):
                number = sum(rows[rank][place] for rank in ranks)
                sums.setdefault(number, set()).add(frozenset(ranks))
    return {number: next(iter(ways)) for number, ways in (sums | own).items() if len(ways) == 1}


def row_text(row: Row) -> str:
    """What one rank holds: "1 2 | 10 20", a bar between tensors, or "nothing"."""
    return " | ".join(" ".join(map(number_text, piece)) for piece in row) or "nothing"


def number_text(number: float) -> str:
    """A number, short enough for a box: 3, 277.75, 1.2e+09, nan."""
    whole = number == number and abs(number) < LARGEST and number == int(number)
    return f"{int(number)}" if whole else f"{number:.5g}"
