"""`predict` keeps a reader's guess; `reveal` shows it beside the formula and the measurement."""

import json
import math
import numbers
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ddp_workbook.workbench.errors import WorkbookError
from ddp_workbook.workbench.files import temporary_folder, write_whole
from ddp_workbook.workbench.palette import rank_hatch, series_colour
from ddp_workbook.workbench.pictures import Picture, show, style

FOLDER = Path("work") / "predictions"
COLUMNS = ("your guess", "formula", "measured")

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
    guess = _plain(name, value)
    if guess is None or (isinstance(guess, dict) and all(v is None for v in guess.values())):
        kept = _latest(name)
        if kept is None:
            return Said(f"{name}: no guess yet. Put yours in place of None, then run the cell.")
        return Said(f"{name}: you said {_text(kept)} last time.")
    guesses = _all(path)
    if not guesses or guesses[-1] != guess:
        _write(path, json.dumps([*guesses, guess], indent=1))
    return Said(f"{name}: you say {_text(guess)}.")


def reveal(name: str, *, measured: Any, formula: Any = None, unit: str = "") -> pd.DataFrame:
    """The guess kept under `name`, the formula's value and what was measured, side by side.

    `measured` and `formula` are numbers, or dicts with the cases of the guess as keys; `unit` names
    what they count. A row a case; a guess that was not made is "no guess".
    """
    guess, sides = _latest(name), {}
    cases = list(measured) if isinstance(measured, Mapping) else [name]
    for column, values in zip(COLUMNS, (guess, formula, measured), strict=True):
        if column == "formula" and formula is None:
            continue
        sides[column] = [_of_case(values, case) for case in cases]
    if "your guess" in sides:
        sides["your guess"] = ["no guess" if v is None else v for v in sides["your guess"]]
    index = pd.Index([str(case) for case in cases], name=unit or None)
    return pd.DataFrame(sides, index=index)


def reveal_plot(
    name: str, *, measured: Mapping, formula: Mapping, xlabel: str, ylabel: str
) -> Picture:
    """The same as a picture: bars for each case, with alt text that holds the numbers."""
    table = reveal(name, measured=measured, formula=formula)
    alt = f"{ylabel} for each case. " + "; ".join(
        f"{case}: " + ", ".join(f"{column} {_text(row[column])}" for column in table)
        for case, row in table.iterrows()
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
    return FOLDER.absolute() / f"{name}.json"


def _plain(name: str, value: Any) -> Any:
    """The guess as JSON can hold it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {str(case): _plain(name, one) for case, one in value.items()}
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = float(value)
        if math.isfinite(number):
            return int(number) if number == int(number) else number
    raise PredictionError(
        f"A guess for {name} is a number, such as 42, or a word in quotation marks; "
        f"this is {value!r}."
    )


def _all(path: Path) -> list:
    for place in (path, temporary_folder() / "predictions" / path.name):
        try:
            return json.loads(place.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
    return []


def _latest(name: str) -> Any:
    guesses = _all(file_of(name))
    return guesses[-1] if guesses else None


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError:
        write_whole(temporary_folder() / "predictions" / path.name, text)


def _of_case(values: Any, case: Any) -> Any:
    if not isinstance(values, Mapping):
        return values
    return values.get(case, values.get(str(case)))


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{_text(one)} for {case}" for case, one in value.items())
    return f"{value:,}" if isinstance(value, int | float) else str(value)
