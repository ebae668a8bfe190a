"""Lines of the benchmark's table: what was measured, compared with what, against which target."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from rich.markup import escape
from rich.table import Table

from manyranks.files import write_atomically
from manyranks.recording.timing import speed_up

HEADINGS = ("what", "measured", "compared with", "ratio", "target", "")


@dataclass(frozen=True)
class Line:
    """A line of the table; `value` and `ratio` are the numbers behind the words.

    `met` is None where there is no target. `note` explains a number that needs it.
    """

    what: str
    measured: str
    value: float
    compared_with: str = ""
    ratio: float | None = None
    ratio_text: str = ""
    target: str = ""
    met: bool | None = None
    note: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """The words of the six columns."""
        verdict = {True: "met", False: "missed", None: ""}[self.met]
        return (
            self.what, self.measured, self.compared_with, self.ratio_text, self.target, verdict,
        )  # fmt: skip


class Spread(NamedTuple):
    """A median with its quartiles and how many values there were."""

    median: float
    q1: float
    q3: float
    count: int


def spread(values: Iterable[float]) -> Spread:
    """Median and quartiles of some numbers."""
    series = pd.Series(list(values))
    q1, middle, q3 = series.quantile([0.25, 0.5, 0.75])
    return Spread(middle, q1, q3, len(series))


def seconds_text(values: Iterable[float]) -> str:
    """0.081 s (0.075 to 0.093, n = 12): median, quartiles, number of timings."""
    middle, q1, q3, count = spread(values)
    scale, unit = (1, "s") if middle >= 0.02 else (1e3, "ms")
    digits = "{:.2f}" if middle * scale >= 0.995 else "{:.3f}"
    low, mid, high = (digits.format(number * scale) for number in (q1, middle, q3))
    return f"{mid} {unit} ({low} to {high}, n = {count})"


def worst_text(values: Iterable[float]) -> str:
    """0.31 s at worst (median 0.22, n = 12)."""
    middle, _, _, count = spread(values)
    return f"{max(values):.2f} s at worst (median {middle:.2f}, n = {count})"


def times_as_fast(frame: pd.DataFrame, candidate: str, baseline: str) -> Spread:
    """How many times as fast as `baseline` the candidate was, from the rounds of one frame."""
    table = speed_up(frame, baseline).set_index("candidate").loc[candidate]
    return Spread(table["median"], table["q1"], table["q3"], int(table["n"]))


def ratio_text(ratio: Spread, words: str) -> str:
    """38 (35 to 41) times as fast."""
    digits = 0 if ratio.median >= 10 else 2
    low, mid, high = (f"{number:.{digits}f}" for number in (ratio.q1, ratio.median, ratio.q3))
    return f"{mid} ({low} to {high}) {words}"


def of(frame: pd.DataFrame, candidate: str) -> list[float]:
    """The seconds of one candidate."""
    return frame.loc[frame["candidate"] == candidate, "seconds"].tolist()


def beside(
    frame: pd.DataFrame, what: str, mine: str, other: str, longer: bool = False, note: str = ""
) -> Line:
    """`mine` against `other` in the same rounds, without a target.

    The ratio says how many times as fast `mine` was, or how many times as long it took.
    """
    seconds = of(frame, mine)
    ratio = times_as_fast(frame, other, mine) if longer else times_as_fast(frame, mine, other)
    return Line(
        what,
        seconds_text(seconds),
        spread(seconds).median,
        f"{other}: {seconds_text(of(frame, other))}",
        ratio.median,
        ratio_text(ratio, "times as long" if longer else "times as fast"),
        note=note,
    )


def at_least(line: Line, times: float) -> Line:
    """The same line, with this target for its ratio."""
    return replace(line, target=f"at least {times} times", met=bool(line.ratio >= times))


def at_most(line: Line, seconds: float) -> Line:
    """The same line, with this target for its seconds."""
    return replace(line, target=f"at most {seconds:g} s", met=bool(line.value <= seconds))


def rich_table(lines: Iterable[Line], title: str) -> Table:
    """The lines for a terminal; the verdict is in words, its colour only helps."""
    table = Table(*HEADINGS, title=title, title_justify="left", show_lines=True)
    for line in lines:
        style = {True: "green", False: "bold red", None: ""}[line.met]
        *cells, verdict = line.cells
        table.add_row(*map(escape, cells), f"[{style}]{verdict}[/]" if style else verdict)
    return table


def notes(lines: Iterable[Line]) -> list[str]:
    """The notes of the lines, one paragraph each, with what it is about."""
    return [" ".join(f"{line.what}: {line.note}".split()) for line in lines if line.note]


def write_markdown(lines: list[Line], heading: str, path: Path) -> Path:
    """Write the same table as Markdown, whole or not at all; returns the path."""
    rows = [HEADINGS, ("---",) * len(HEADINGS), *(line.cells for line in lines)]
    text = [f"# {heading}", "", *("| " + " | ".join(row) + " |" for row in rows), ""]
    text += [f"- {note}" for note in notes(lines)]
    return write_atomically(path, "\n".join(text).rstrip() + "\n")
