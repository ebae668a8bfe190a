"""What ranks hold before and after a collective: as numbers, in words, and where each came from."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ddp_workbook.figures.style import PictureError

MOST_RANKS = 8  # more have no colours of their own
LARGEST = 1e7  # whole numbers below it are shown with all their digits

Row = list[list[float]]  # what a rank holds: its tensors' numbers, a list a tensor


def held(value: Any) -> Row:
    """Tensors or numbers, one or a list of them, or None, as lists of numbers."""
    if value is None:
        return []
    if hasattr(value, "detach"):
        return [value.detach().cpu().flatten().tolist()]
    if isinstance(value, int | float):
        return [[value]]
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise PictureError(f"A rank must hold tensors or numbers to be drawn; {value!r} is none.")
    parts = list(value)
    if parts and all(isinstance(part, int | float) for part in parts):
        return [parts]
    return [piece for part in parts for piece in held(part)]


def before_and_after(moved: Sequence) -> tuple[list[Row], list[Row]]:
    """Both sides of what `launch` returned for a worker that returns (before, after).

    Raises PictureError for anything else, and for more ranks than have colours of their own.
    """
    pairs = list(moved)
    if not pairs or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise PictureError(
            "Pass what launch returned: for each rank a pair (before, after), the values that it "
            "held before the collective and after it."
        )
    if len(pairs) > MOST_RANKS:
        raise PictureError(
            f"A picture shows up to {MOST_RANKS} ranks, these are {len(pairs)}. "
            "Look at the values themselves, or run fewer ranks."
        )
    return [held(before) for before, _ in pairs], [held(after) for _, after in pairs]


def origins(before: Sequence[Row]) -> dict[float, frozenset[int]]:
    """For every number that one rank held, or that is a sum over ranks: the ranks that are in it.

    A sum takes the numbers at the same place of each rank. A number that could have come about in
    two ways is left out, except that a rank's own number goes before a sum.
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
    """A number as short as a box wants it: 3, 277.75, 1.2e+09, nan."""
    whole = number == number and abs(number) < LARGEST and number == int(number)
    return f"{int(number)}" if whole else f"{number:.5g}"
