"""`predict` keeps a reader's guess; `reveal` shows it beside the formula and the measurement."""

import contextlib
import json
import math
import numbers
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ddp_workbook.errors import WorkbookError
from ddp_workbook.figures.palette import rank_hatch, series_colour
from ddp_workbook.figures.style import Picture, show, style
from ddp_workbook.files import temporary_folder
from ddp_workbook.launcher import serialization

FOLDER = Path("work") / "predictions"
COLUMNS = ("your guess", "formula", "measured")
LONGEST = 200  # characters of a guess in words
LARGEST = 1e15  # above it a float is no whole number any more

Guess = float | str | Mapping[Any, Any] | None


class PredictionError(WorkbookError, ValueError):
    """A guess that cannot be kept, or a name that is none."""


class Said(str):
    """A sentence as the value of a cell, shown without quotation marks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def predict(name: str, value: Guess = None) -> Said:
    """Keep the reader's guess under `name`, a word of the page; earlier guesses stay in the file.

    A number, a word, or a dict with one of them for each case. None, or a dict of None, is no guess
    yet. Raises PredictionError for anything else.
    """
    path = file_of(name)
    guess = _guess(name, value)
    if guess is None or (isinstance(guess, dict) and all(v is None for v in guess.values())):
        kept = _latest(name)
        if kept is None:
            return Said(f"{name}: no guess yet. Put yours in place of None, then run the cell.")
        return Said(f"{name}: you said {_text(kept)} last time.")
    guesses = _all(path)
    if not guesses or guesses[-1] != guess:
        _append(path, json.dumps(guess))
    return Said(f"{name}: you say {_text(guess)}.")


def reveal(name: str, *, measured: Any, formula: Any = None, unit: str = "") -> pd.DataFrame:
    """The guess kept under `name`, the formula's value and what was measured, side by side.

    `measured` and `formula` are numbers, or dicts with the cases of the guess as keys; `unit` names
    what they count. A row a case; a guess that was not made is "no guess".
    """
    guess, sides = _latest(name), {}
    cases = list(measured) if isinstance(measured, Mapping) else [name]
    if isinstance(guess, Mapping) and not isinstance(measured, Mapping):
        guess = _text(guess)
    for column, values in zip(COLUMNS, (guess, formula, measured), strict=True):
        if column == "formula" and formula is None:
            continue
        sides[column] = [_of_case(values, case) for case in cases]
    sides["your guess"] = ["no guess" if v is None else v for v in sides["your guess"]]
    index = pd.Index([str(case) for case in cases], name=unit or None)
    return pd.DataFrame(sides, index=index)


def reveal_plot(
    name: str, *, measured: Mapping, formula: Mapping, xlabel: str, ylabel: str
) -> Picture:
    """The same as a picture: bars for each case, with alt text that holds the numbers."""
    table = reveal(name, measured=measured, formula=formula)
    alt = f"{ylabel} for each case. " + "; ".join(
        f"{case}: " + ", ".join(f"{column} {_text(table.at[case, column])}" for column in table)
        for case in table.index
    )
    return show(_bars(table, xlabel, ylabel), alt=f"{alt}.")


@style()
def _bars(table: pd.DataFrame, xlabel: str, ylabel: str) -> Figure:
    figure = Figure((6.4, 3.2), layout="constrained")
    axes, width = figure.subplots(), 0.8 / len(table.columns)
    for number, column in enumerate(table):
        heights = pd.to_numeric(table[column], errors="coerce")
        places = [place + (number - 1) * width for place in range(len(table))]
        look = {"color": series_colour(number), "hatch": rank_hatch(number)}
        missing = " (none)" if heights.isna().all() else ""
        axes.bar(places, heights.fillna(0), width * 0.92, label=column + missing, **look)
    axes.set_xticks(range(len(table)), table.index)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    figure.legend(loc="outside upper left", ncols=3)
    return figure


def file_of(name: str) -> Path:
    """Where the guesses under `name` are kept; raises PredictionError for what is no word."""
    if not (isinstance(name, str) and name.isidentifier()):
        raise PredictionError(f"{name!r} is no name for a guess: take a word, as the page does.")
    return FOLDER.absolute() / f"{name}.jsonl"


def _guess(name: str, value: Any) -> Any:
    """The guess as JSON can hold it; PredictionError if it is none."""
    if isinstance(value, Mapping):
        return {str(case): _plain(f"{name}, {case}", one) for case, one in value.items()}
    return _plain(name, value)


def _plain(name: str, value: Any) -> float | str | None:
    if value is None:
        return None
    if isinstance(value, str) and value.strip() and len(value) <= LONGEST:
        return " ".join(value.split())
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # an int beyond all floats
            number = float(value)
            if math.isfinite(number):
                whole = number == int(number) and abs(number) < LARGEST
                return int(value) if whole else number
    raise PredictionError(
        f"A guess for {name} is a number, such as 42, or a word in quotation marks. "
        f"This is {serialization.short_repr(value)}."
    )


def _all(path: Path) -> list:
    """The guesses, one a line, the latest last; a line that is none is passed over."""
    found = []
    for place in (path, _instead_of(path)):
        with contextlib.suppress(OSError):
            for line in place.read_bytes().decode("utf-8", "replace").splitlines():
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line))
    return found


def _latest(name: str) -> Any:
    guesses = _all(file_of(name))
    return guesses[-1] if guesses else None


def _instead_of(path: Path) -> Path:
    """Where guesses are kept if the reader's folder cannot be written."""
    return temporary_folder() / "predictions" / path.name


def _append(path: Path, line: str) -> None:
    """Add a line at the end of the file, so that no earlier one can be lost."""
    problem = None
    for place in (path, _instead_of(path)):
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with open(place, "a+b") as file:
                torn = file.tell() and file.seek(-1, os.SEEK_END) and file.read() != b"\n"
                file.write(b"\n" * bool(torn) + f"{line}\n".encode())
            return
        except OSError as error:
            problem = error
    raise PredictionError(f"Your guess could not be kept: {problem}.")


def _of_case(values: Any, case: Any) -> Any:
    if not isinstance(values, Mapping):
        return values
    return values.get(case, values.get(str(case)))


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{_text(one)} for {case}" for case, one in value.items())
    if isinstance(value, numbers.Integral):
        return f"{value:,}"
    return f"{value:,.10g}" if isinstance(value, numbers.Real) else str(value)
