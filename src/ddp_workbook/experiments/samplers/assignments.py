"""Which rank got which samples.

The pictures take a table with a row for each sample that a rank received. Its columns: epoch (a
number, or a name for the row), rank, place (0 is the rank's first sample in the epoch) and sample.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from manyranks import figures
from manyranks.figures.palette import FAINT, INK

COLUMNS = ["epoch", "rank", "place", "sample"]
MAX_SAMPLES = 40  # samples side by side whose numbers can still be read
RANKS = 8  # as many as have a colour of their own
MARGIN_INCHES = 1.5  # inches for the names of the rows
MIN_WIDTH_INCHES = 5.4  # inches needed by the words below the boxes


def sample_table(samples_by_epoch: Mapping[Any, Sequence[Sequence[int]]]) -> pd.DataFrame:
    """The table for the pictures: `samples_by_epoch[epoch][rank]` has the samples, in order."""
    rows = [
        (epoch, rank, place, int(sample))
        for epoch, of_ranks in samples_by_epoch.items()
        for rank, samples in enumerate(of_ranks)
        for place, sample in enumerate(samples)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


@figures.house_style
def assignment_plot(table: pd.DataFrame, batch_size: int | None = None) -> figures.Picture:
    """In each epoch a line for each rank: its samples, in the order in which it received them.

    A box is a sample, with its number, in the colour of the rank. A heavy black frame marks a
    sample that was already given out in the same epoch. With `batch_size`, the samples of one rank
    in a step, the steps are marked below. Raises ValueError for a table without rows, or with more
    ranks or samples than a picture can show.
    """
    _check(table, across=table["place"].max() + 1)
    again = _repeats(table)
    lanes = list(dict.fromkeys(zip(table["epoch"], table["rank"], strict=True)))
    gaps = {epoch: 0.35 * i for i, epoch in enumerate(table["epoch"].unique())}
    heights = {lane: i + gaps[lane[0]] for i, lane in enumerate(lanes)}
    across = int(table["place"].max()) + 1
    figure, axes = _canvas(
        across, 1 + max(heights.values()), len(again) > 0, words_below=batch_size is not None
    )
    for row in table.itertuples():
        height = heights[row.epoch, row.rank]
        _box(axes, row.place, height, row.rank, row.sample, heavy=row.Index in again)
    _finish(axes, [f"{_row_name(epoch)}, rank {rank}" for epoch, rank in lanes], heights.values())
    if batch_size is not None:
        _mark_steps(axes, across, batch_size)
    if len(again):
        _explain(figure, "heavy frame: a sample that this epoch has given out already")
    return figures.Picture(figure, _words_of_microscope(table))


def _words_of_microscope(table: pd.DataFrame) -> str:
    again = _repeats(table)
    lines = []
    for epoch, of_epoch in table.groupby("epoch", sort=False):
        ranks = [
            f"rank {rank} got {_numbers_text(own['sample'])}"
            for rank, own in of_epoch.groupby("rank")
        ]
        lines.append(f"{_row_name(epoch)}: {'; '.join(ranks)}.")
    repeats = [
        f"sample {row.sample} on rank {row.rank} in {_row_name(row.epoch)}"
        for row in table.loc[again].itertuples()
    ]
    frames = [f"Heavy frames, given out before: {', '.join(repeats)}."] if repeats else []
    return " ".join(["Samples in the order in which each rank got them.", *lines, *frames])


@figures.house_style
def owners_plot(
    table: pd.DataFrame, samples: int, parts: Collection[object] = ()
) -> figures.Picture:
    """For each epoch a line of all samples, 0 to `samples` - 1, each with the rank that got it.

    A box has the colour and the number of its rank. It is divided if the sample was given out more
    than once, and dashed and empty if no rank got it. The rows named in `parts` show only a part of
    an epoch: there, a sample that no rank got is left blank. Raises ValueError as `assignment_plot`
    does, and for a sample outside the line.
    """
    _check(table, across=samples)
    if not table["sample"].between(0, samples - 1).all():
        raise ValueError(f"The table holds samples outside of 0 to {samples - 1}.")
    epochs = list(table["epoch"].unique())
    twice, never = _twice_and_never(table, samples, parts)
    has_repeats, missing = any(map(len, twice.values())), any(map(len, never.values()))
    figure, axes = _canvas(samples, len(epochs), missing or has_repeats, words_below=True)
    for height, epoch in enumerate(epochs):
        of_epoch = table[table["epoch"] == epoch].sort_values("place", kind="stable")
        for sample in range(samples):
            owners = list(of_epoch.loc[of_epoch["sample"] == sample, "rank"])
            for part, rank in enumerate(owners):
                _box(axes, sample, height, rank, rank, parts=len(owners), part=part)
            if not owners:
                _empty_box(axes, sample, height, dashed=epoch not in parts)
    _finish(axes, [_row_name(epoch) for epoch in epochs], range(len(epochs)))
    axes.set_xticks([sample + 0.45 for sample in range(samples)], range(samples))
    axes.tick_params(axis="x", length=0, labelsize=9 if samples > 24 else 10)
    axes.set_xlabel("sample; the number in the box is the rank that got it", loc="left")
    notes = [("divided box: given out twice", has_repeats), ("dashed: left out", missing)]
    if missing or has_repeats:
        _explain(figure, "; ".join(words for words, applies in notes if applies))
    return figures.Picture(figure, _words_of_owners(table, samples, parts))


def _words_of_owners(table: pd.DataFrame, samples: int, parts: Collection[object]) -> str:
    twice, never = _twice_and_never(table, samples, parts)
    lines = []
    for epoch, of_epoch in table.groupby("epoch", sort=False):
        ranks = [
            f"rank {rank} got {_numbers_text(sorted(own['sample']))}"
            for rank, own in of_epoch.groupby("rank")
        ]
        notes = []
        if len(twice[epoch]):
            notes.append(f"given out twice: {_numbers_text(twice[epoch])}")
        if len(never[epoch]):
            notes.append(f"left out: {_numbers_text(never[epoch])}")
        lines.append(f"{_row_name(epoch)}: {'; '.join([*ranks, *notes])}.")
    return " ".join([f"Who got which of the samples 0 to {samples - 1}.", *lines])


def _repeats(table: pd.DataFrame) -> pd.Index:
    """The rows whose sample an earlier place, or a lower rank at this place, has had already."""
    order = table.sort_values(["place", "rank"], kind="stable")
    return order[order.duplicated(["epoch", "sample"])].index


def _twice_and_never(
    table: pd.DataFrame, samples: int, parts: Collection[object]
) -> tuple[dict, dict]:
    """For each epoch the samples given out more than once, and those that no rank got."""
    twice, never = {}, {}
    for epoch, of_epoch in table.groupby("epoch", sort=False):
        times = of_epoch["sample"].value_counts().reindex(range(samples), fill_value=0)
        twice[epoch] = list(times.index[times > 1])
        never[epoch] = [] if epoch in parts else list(times.index[times == 0])
    return twice, never


def _numbers_text(samples: Sequence[int]) -> str:
    return ", ".join(str(sample) for sample in samples)


def _check(table: pd.DataFrame, across: int) -> None:
    if table.empty:
        raise ValueError("There are no samples to draw.")
    if across > MAX_SAMPLES:
        raise ValueError(f"{across} samples do not fit side by side: {MAX_SAMPLES} do.")
    if table["rank"].max() >= RANKS:
        raise ValueError(f"{table['rank'].max() + 1} ranks cannot be told apart: {RANKS} can.")


def _canvas(
    across: int, down: float, notes: bool, words_below: bool
) -> tuple[figures.Figure, figures.Axes]:
    box = min(0.46, (figures.WIDTH - MARGIN_INCHES) / across)
    width = max(MARGIN_INCHES + box * across, MIN_WIDTH_INCHES if notes or words_below else 0)
    height = 0.35 + 0.36 * down + 0.35 * words_below + 0.3 * notes
    figure = figures.Figure((width, height), layout="constrained")
    axes = figure.subplots()
    axes.set_xlim(-0.1, (width - MARGIN_INCHES) / box)
    return figure, axes


def _box(
    axes: figures.Axes,
    column: int,
    height: float,
    rank: int,
    text: object,
    *,
    heavy: bool = False,
    parts: int = 1,
    part: int = 0,
) -> None:
    """One box, or number `part` of the `parts` that a box is divided into."""
    width = 0.9 / parts
    frame: figures.FillStyle = {"linewidth": 1.6}
    if heavy:
        frame = {"linewidth": 3.0, "edgecolor": INK, "zorder": 3}
    corner, words = (column + part * width, height - 0.4), {"fontsize": 9.5, "zorder": 4}
    weight = "bold" if heavy else "normal"
    figures.box(axes, corner, (width, 0.8), text, rank, frame=frame, weight=weight, **words)


def _empty_box(axes: figures.Axes, column: int, height: float, dashed: bool) -> None:
    if dashed:
        look = {"facecolor": "white", "linestyle": (0, (2, 2)), "linewidth": 1.2}
        figures.box(axes, (column, height - 0.4), (0.9, 0.8), frame=look)
    else:
        axes.plot(column + 0.45, height, ".", color=FAINT, markersize=4)


def _mark_steps(axes: figures.Axes, across: int, batch_size: int) -> None:
    """Below the boxes the number of the step, and a line where the next step begins."""
    starts = range(0, across, batch_size)
    axes.set_xticks(
        [(start + min(start + batch_size, across)) / 2 - 0.05 for start in starts],
        [f"step {number}" for number in range(len(starts))],
    )
    axes.tick_params(axis="x", length=0)
    for start in starts[1:]:
        axes.axvline(start - 0.05, color=INK, linewidth=1, linestyle=(0, (1, 2)), zorder=1)


def _finish(axes: figures.Axes, names: list[str], heights: Collection[float]) -> None:
    figures.label_rows(axes, names)
    axes.set_yticks(list(heights), names)
    axes.set_ylim(max(heights) + 0.5, -0.5)
    axes.set_xticks([])
    axes.spines[:].set_visible(False)


def _row_name(epoch: object) -> str:
    return epoch if isinstance(epoch, str) else f"epoch {epoch}"


def _explain(figure: figures.Figure, words: str) -> None:
    figure.supxlabel(words, x=0.01, ha="left", fontsize=9)
