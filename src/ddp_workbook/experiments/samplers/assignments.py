"""Which rank got which samples.

The pictures take a table with a row for each sample that a rank received. Its columns: epoch (a
number, or a name for the row), rank, place (0 is the rank's first sample in the epoch) and sample.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from manyranks import figures
from manyranks.figures.palette import FAINT, INK

COLUMNS = ["epoch", "rank", "place", "sample"]
MAX_SAMPLES = 40  # samples side by side whose numbers can still be read
RANKS = 8  # as many as have a colour of their own
MARGIN_INCHES = 1.5  # inches for the names of the rows of owners_plot
MIN_WIDTH_INCHES = 5.4  # inches needed by the words below its boxes
RANK_INCHES = 0.75  # the names of the ranks, to the left of assignment_plot
EPOCH_GAP, STEP_GAPS = 0.4, (0.12, 0.05)  # inches; the second one where there are many steps
MIN_EPOCH_INCHES = 2.2  # as wide as the words above an epoch
BOX_INCHES = (0.32, 1.0)  # a sample is at least and at most so wide
LANE_INCHES, LINE_INCHES = 0.38, 0.24  # heights: of a rank, of a line of words
BATCH_COLOUR = "#ececec"


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
def assignment_plot(
    table: pd.DataFrame, batch_size: int | None = None, notes: Mapping[Any, str] | None = None
) -> figures.Picture:
    """A panel for each epoch, in it a lane for each rank: its samples, in the order they came.

    A box is a sample, with its number, in the colour of the rank. A heavy black frame marks a
    sample that was already given out in the same epoch. With `batch_size`, the samples of one rank
    in a step, a grey field holds the samples of all ranks in a step: the global batch. `notes` are
    lines below the name of an epoch. Raises ValueError for a table without rows, or with more
    ranks or samples than a picture can show.
    """
    across = int(table["place"].max()) + 1 if len(table) else 0
    _check(table, across=across)
    again, ranks = _repeats(table), int(table["rank"].max()) + 1
    epochs = list(table["epoch"].unique())
    panels = _panels(across, batch_size or across, epochs)
    words_above = {epoch: (notes or {}).get(epoch, "") for epoch in epochs}
    lines = 1 + max(words.count("\n") + 1 if words else 0 for words in words_above.values())
    above = 0.1 + LINE_INCHES * lines * (len(epochs) > 1 or lines > 1)
    height = above + LANE_INCHES * ranks + (0.3 if batch_size else 0.1)
    width = max(panel.right for panel in panels.values()) + 0.1
    bottom = height * (1 + max(panel.row for panel in panels.values()))
    axes = (
        figures.sheet(max(width, 4.6), bottom + 0.3) if len(again) else figures.sheet(width, bottom)
    )
    for epoch, panel in panels.items():
        top = panel.row * height
        lanes_top = top + above
        if above > LINE_INCHES:
            axes.text(panel.left, top + 0.06, _row_name(epoch), va="top", weight="bold")
            words = {"va": "top", "linespacing": 1.35, "size": 10}
            axes.text(panel.left, top + 0.06 + LINE_INCHES, words_above[epoch], **words)
        if panel.is_first:
            figures.label_ranks(axes, ranks, lanes_top + LANE_INCHES / 2, LANE_INCHES)
        if batch_size:
            _draw_steps(axes, panel, across, lanes_top, lanes_top + LANE_INCHES * ranks)
        for row in table[table["epoch"] == epoch].itertuples():
            corner = panel.left_of(row.place), lanes_top + LANE_INCHES * row.rank + 0.04
            size = panel.box - 0.05, LANE_INCHES - 0.08
            _box(axes, corner, size, row.rank, row.sample, heavy=row.Index in again)
    if len(again):
        note = "heavy frame: this epoch has given the sample out already"
        axes.text(0.1, bottom + 0.1, note, va="center", size=9.5)
    return figures.Picture(axes.figure, _words_of_microscope(table))


class _Panel(NamedTuple):
    """Where an epoch is drawn, in inches; a box and the gap behind it are `box` wide."""

    left: float
    row: int  # of panels
    is_first: bool  # of its row
    box: float
    batch_size: int
    step_gap: float
    right: float

    def left_of(self, place: int) -> float:
        """The left edge of a rank's sample number `place`."""
        return self.left + self.box * place + self.step_gap * (place // self.batch_size)


def _panels(across: int, batch_size: int, epochs: list) -> dict[Any, _Panel]:
    """The epochs side by side if their numbers can be read there, else one below the other."""
    gaps = (across - 1) // batch_size
    step_gap = STEP_GAPS[gaps > 12]
    room = figures.WIDTH - RANK_INCHES - 0.1
    share = (room - EPOCH_GAP * (len(epochs) - 1)) / len(epochs)
    narrow = (share - step_gap * gaps) / across < BOX_INCHES[0] or share < MIN_EPOCH_INCHES
    stacked = narrow and len(epochs) > 1
    box = min(((room if stacked else share) - step_gap * gaps) / across, BOX_INCHES[1])
    width = max(across * box + gaps * step_gap, MIN_EPOCH_INCHES)
    panels = {}
    for number, epoch in enumerate(epochs):
        row, column = (number, 0) if stacked else (0, number)
        left = RANK_INCHES + column * (width + EPOCH_GAP)
        panels[epoch] = _Panel(left, row, column == 0, box, batch_size, step_gap, left + width)
    return panels


def _draw_steps(axes: figures.Axes, panel: _Panel, across: int, top: float, bottom: float) -> None:
    """Behind the boxes a field for each step, and below it its number."""
    for step, start in enumerate(range(0, across, panel.batch_size)):
        last = min(start + panel.batch_size, across) - 1
        left, right = panel.left_of(start) - 0.045, panel.left_of(last) + panel.box - 0.005
        size, look = (right - left, bottom - top), {"facecolor": BATCH_COLOUR, "zorder": 0}
        axes.add_patch(figures.Rectangle((left, top), *size, **look))
        axes.text((left + right) / 2, bottom + 0.14, str(step), ha="center", va="center", size=10)
    if panel.is_first:
        axes.text(0.1, bottom + 0.14, "step", va="center", size=10)


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
    figure, axes = _canvas(samples, len(epochs), missing or has_repeats)
    for height, epoch in enumerate(epochs):
        of_epoch = table[table["epoch"] == epoch].sort_values("place", kind="stable")
        for sample in range(samples):
            owners = list(of_epoch.loc[of_epoch["sample"] == sample, "rank"])
            for part, rank in enumerate(owners):
                width = 0.9 / len(owners)
                corner = (sample + part * width, height - 0.4)
                _box(axes, corner, (width, 0.8), rank, rank)
            if not owners:
                _empty_box(axes, sample, height, dashed=epoch not in parts)
    figures.label_rows(axes, [_row_name(epoch) for epoch in epochs])
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
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


def _canvas(across: int, down: float, notes: bool) -> tuple[figures.Figure, figures.Axes]:
    box = min(0.58, (figures.WIDTH - MARGIN_INCHES) / across)
    width = max(MARGIN_INCHES + box * across, MIN_WIDTH_INCHES)
    height = 0.7 + 0.36 * down + 0.3 * notes
    figure = figures.Figure((width, height), layout="constrained")
    axes = figure.subplots()
    axes.set_xlim(-0.1, (width - MARGIN_INCHES) / box)
    return figure, axes


def _box(
    axes: figures.Axes,
    corner: tuple[float, float],
    size: tuple[float, float],
    rank: int,
    text: object,
    heavy: bool = False,
) -> None:
    frame: figures.FillStyle = {"linewidth": 1.6}
    if heavy:
        frame = {"linewidth": 3.0, "edgecolor": INK, "zorder": 3}
    weight = "bold" if heavy else "normal"
    words = {"fontsize": 9.5, "zorder": 4, "weight": weight}
    figures.box(axes, corner, size, text, rank, frame=frame, **words)


def _empty_box(axes: figures.Axes, column: int, height: float, dashed: bool) -> None:
    if dashed:
        look = {"facecolor": "white", "linestyle": (0, (2, 2)), "linewidth": 1.2}
        figures.box(axes, (column, height - 0.4), (0.9, 0.8), frame=look)
    else:
        axes.plot(column + 0.45, height, ".", color=FAINT, markersize=4)


def _row_name(epoch: object) -> str:
    return epoch if isinstance(epoch, str) else f"epoch {epoch}"


def _explain(figure: figures.Figure, words: str) -> None:
    figure.supxlabel(words, x=0.01, ha="left", fontsize=9)
