"""`predict` keeps a reader's guess; `reveal` shows it beside the formula and the measurement.

Each kernel keeps its guesses in its own files, so two kernels in one folder keep both, and each
reveals its own. A kernel that has no guess yet takes the latest one.
"""

from __future__ import annotations

import contextlib
import json
import math
import numbers
import re
import reprlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ddp_workbook import figures
from ddp_workbook.errors import WorkbookError
from ddp_workbook.figures.palette import rank_hatch, series_colour
from ddp_workbook.files import temporary_folder, temporary_folders, write_whole

FOLDER = Path("work") / "predictions"
KERNEL = secrets.token_hex(4)  # in the names of this kernel's guesses
COLUMNS = ("your guess", "formula", "measured")

Guess = float | str | Mapping[Any, Any] | None


class PredictionError(WorkbookError, ValueError):
    """A guess that is neither a number nor a word."""


class Said(str):
    """A sentence that a cell shows without quotation marks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def predict(name: str, value: Guess = None) -> Said:
    """Keep the reader's guess under `name`; it replaces an earlier one of this kernel.

    A guess is a number, a word, or a dict with one of them for each case. None, or a dict of None,
    is not a guess: the earlier one is shown. Raises PredictionError for anything else.
    """
    guess: Any  # as JSON can hold it
    if isinstance(value, Mapping):
        guess = {str(case): _plain(f"{name}, {case}", one) for case, one in value.items()}
    else:
        guess = _plain(name, value)
    if guess is None or (isinstance(guess, dict) and all(v is None for v in guess.values())):
        kept = _kept(name)
        if kept is None:
            return Said(f"{name}: no guess yet. Put yours in place of None, then run the cell.")
        return Said(f"{name}: you said {_text(kept)} last time.")
    text = json.dumps(guess)
    try:
        write_whole(_own(name), text)
    except OSError:  # read-only
        write_whole(temporary_folder() / _file_instead(name), text)
    return Said(f"{name}: you say {_text(guess)}.")


def reveal(name: str, *, measured: Any, formula: Any = None, unit: str = "") -> pd.DataFrame:
    """The guess kept under `name`, the formula's value and the measured value, side by side.

    `measured` and `formula` are numbers, or dicts with the cases of the guess as keys, one row for
    each; `unit` heads the column of cases. A missing guess is shown as "no guess".
    """
    guess, sides = _kept(name), {}
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


@figures.drawn
def reveal_plot(
    name: str, *, measured: Mapping, formula: Mapping, xlabel: str, ylabel: str
) -> figures.Picture:
    """The same as a picture: bars for each case; the alt text has the numbers."""
    from matplotlib.figure import Figure  # late: ranks import this module too

    table = reveal(name, measured=measured, formula=formula)
    alt = f"{ylabel} for each case. " + "; ".join(
        f"{case}: " + ", ".join(f"{column} {_text(table.at[case, column])}" for column in table)
        for case in table.index
    )
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
    return figures.Picture(figure, f"{alt}.")


def _plain(name: str, value: Any) -> float | str | None:
    if value is None:
        return None
    if isinstance(value, str) and value.strip():
        return " ".join(value.split())
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if is_number and math.isfinite(value):
        return int(value) if value == int(value) else float(value)
    raise PredictionError(
        f"A guess for {name} is a number, such as 42, or a word in quotation marks. "
        f"This is {reprlib.repr(value)}."
    )


def _kept(name: str) -> Any:
    """The guess under `name`: this kernel's own, else the latest, else None."""
    instead = [folder / _file_instead(name) for folder in temporary_folders()]
    for path in (*instead, _own(name), *_others(name)):
        with contextlib.suppress(OSError):
            return json.loads(path.read_text(encoding="utf-8"))
    return None


def _own(name: str) -> Path:
    """The file of this kernel's guess."""
    return FOLDER.absolute() / f"{name}.{KERNEL}.json"


def _others(name: str) -> list[Path]:
    """The files of all guesses under `name`, the latest first; one without a kernel is older."""
    file, found = re.compile(rf"{re.escape(name)}(\.[0-9a-f]{{8}})?\.json"), []
    with contextlib.suppress(OSError):
        for path in FOLDER.absolute().iterdir():
            if file.fullmatch(path.name):
                found.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(found, reverse=True)]


def _file_instead(name: str) -> Path:
    """The file of a guess, in the temporary folder, if the reader's folder is read-only."""
    return Path("predictions", f"{name}.json")


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
