"""Chapter 04's pictures: which rank got which samples, and how a batch reaches a GPU.

The pictures of samples take a table with a row for each sample that a rank received. Its columns:
epoch (a number, or a name for the row), rank, place (0 is the rank's first sample in the epoch) and
sample.

    python -m ddp_workbook.figures.samplers

writes the drawing of pinned memory, which shows no measurement, to figs/samplers_pinning.svg.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from ddp_workbook.figures.palette import rank_colour, series_colour, tint
from ddp_workbook.figures.style import INK, WIDTH, label_rows, save, style

COLUMNS = ["epoch", "rank", "place", "sample"]
ACROSS = 40  # samples side by side whose numbers can still be read
RANKS = 8  # as many as have a colour of their own
MARGIN = 1.5  # inches for the names of the rows
LEAST = 5.4  # inches needed by the words below the boxes

PINNING_FILE = Path(__file__).parents[3] / "figs" / "samplers_pinning.svg"
PINNING_ALT = (
    "Two ways to copy a batch from the machine's memory to a GPU. "
    "Ordinary memory takes two copies: the CPU copies the batch into a small buffer of pinned "
    "memory, and the GPU fetches it from there; Python waits until the first copy is done. "
    "From pinned memory the GPU fetches the batch in one copy; with non_blocking=True Python does "
    "not wait."
)
MIDDLES = {"memory": 2.35, "buffer": 6.05, "GPU": 9.7}  # of the three columns
MEMORY_WIDTH, MEMORY_HEIGHT = 1.9, 0.78


def sample_table(received: dict[object, Sequence[Sequence[int]]]) -> pd.DataFrame:
    """The table for the pictures: `received[epoch][rank]` is the list of samples, in order."""
    rows = [
        (epoch, rank, place, int(sample))
        for epoch, of_ranks in received.items()
        for rank, samples in enumerate(of_ranks)
        for place, sample in enumerate(samples)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


@style()
def microscope_plot(table: pd.DataFrame) -> Figure:
    """In each epoch a line for each rank: its samples, in the order in which it received them.

    A box is a sample, with its number, in the colour of the rank. A heavy black frame marks a
    sample that was already given out in the same epoch. Raises ValueError for a table without rows,
    or with more ranks or samples than a picture can show.
    """
    _check(table, across=table["place"].max() + 1)
    order = table.sort_values(["place", "rank"], kind="stable")
    again = order[order.duplicated(["epoch", "sample"])].index
    lanes = list(dict.fromkeys(zip(table["epoch"], table["rank"], strict=True)))
    gaps = {epoch: 0.35 * i for i, epoch in enumerate(table["epoch"].unique())}
    heights = {lane: i + gaps[lane[0]] for i, lane in enumerate(lanes)}
    across = int(table["place"].max()) + 1
    figure, axes = _canvas(across, 1 + max(heights.values()), len(again) > 0, words_below=False)
    for row in table.itertuples():
        height = heights[row.epoch, row.rank]
        _box(axes, row.place, height, row.rank, row.sample, heavy=row.Index in again)
    _finish(axes, [f"{_row_name(epoch)}, rank {rank}" for epoch, rank in lanes], heights.values())
    if len(again):
        _explain(figure, "heavy frame: a sample that this epoch has given out already")
    return figure


@style()
def owners_plot(table: pd.DataFrame, samples: int) -> Figure:
    """For each epoch a line of all samples, 0 to `samples` - 1, each with the rank that got it.

    A box has the colour and the number of its rank. It is divided if the sample was given out more
    than once, and dashed and empty if no rank got it. Raises ValueError as `microscope_plot` does,
    and for a sample outside the line.
    """
    _check(table, across=samples)
    if not table["sample"].between(0, samples - 1).all():
        raise ValueError(f"The table holds samples outside of 0 to {samples - 1}.")
    epochs = list(table["epoch"].unique())
    missing = len(table.groupby(["epoch", "sample"])) < samples * len(epochs)
    doubled = table.duplicated(["epoch", "sample"]).any()
    figure, axes = _canvas(samples, len(epochs), missing or doubled, words_below=True)
    for height, epoch in enumerate(epochs):
        of_epoch = table[table["epoch"] == epoch].sort_values("place", kind="stable")
        for sample in range(samples):
            owners = list(of_epoch.loc[of_epoch["sample"] == sample, "rank"])
            for part, rank in enumerate(owners):
                _box(axes, sample, height, rank, rank, parts=len(owners), part=part)
            if not owners:
                look = {"facecolor": "white", "edgecolor": INK, "linestyle": (0, (2, 2))}
                axes.add_patch(Rectangle((sample, height - 0.4), 0.9, 0.8, linewidth=1.2, **look))
    _finish(axes, [_row_name(epoch) for epoch in epochs], range(len(epochs)))
    axes.set_xticks([sample + 0.45 for sample in range(samples)], range(samples))
    axes.tick_params(axis="x", length=0, labelsize=9 if samples > 24 else 10)
    axes.set_xlabel("sample; the number in the box is the rank that got it", loc="left")
    notes = [("divided box: given out twice", doubled), ("dashed: to nobody", missing)]
    if missing or doubled:
        _explain(figure, "; ".join(words for words, shown in notes if shown))
    return figure


def _check(table: pd.DataFrame, across: int) -> None:
    if table.empty:
        raise ValueError("There are no samples to draw.")
    if across > ACROSS:
        raise ValueError(f"{across} samples do not fit side by side: {ACROSS} do.")
    if table["rank"].max() >= RANKS:
        raise ValueError(f"{table['rank'].max() + 1} ranks cannot be told apart: {RANKS} can.")


def _canvas(across: int, down: float, notes: bool, words_below: bool) -> tuple[Figure, Axes]:
    box = min(0.46, (WIDTH - MARGIN) / across)
    width = max(MARGIN + box * across, LEAST if notes or words_below else 0)
    height = 0.35 + 0.36 * down + 0.35 * words_below + 0.3 * notes
    figure = Figure((width, height), layout="constrained")
    axes = figure.subplots()
    axes.set_xlim(-0.1, (width - MARGIN) / box)
    return figure, axes


def _box(
    axes: Axes,
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
    left = column + part * width
    edge, line = (INK, 3.0) if heavy else (rank_colour(rank), 1.6)
    look = {"edgecolor": edge, "linewidth": line, "zorder": 3 if heavy else 2}
    fill = tint(rank_colour(rank))
    axes.add_patch(Rectangle((left, height - 0.4), width, 0.8, facecolor=fill, **look))
    weight = "bold" if heavy else "normal"
    place = {"ha": "center", "va": "center", "zorder": 4}
    axes.text(left + width / 2, height, str(text), fontsize=9.5, weight=weight, **place)


def _finish(axes: Axes, names: list[str], heights: Sequence[float]) -> None:
    heights = list(heights)
    label_rows(axes, names)
    axes.set_yticks(heights, names)
    axes.set_ylim(max(heights) + 0.5, -0.5)
    axes.set_xticks([])
    axes.spines[:].set_visible(False)


def _row_name(epoch: object) -> str:
    return epoch if isinstance(epoch, str) else f"epoch {epoch}"


def _explain(figure: Figure, words: str) -> None:
    figure.supxlabel(words, x=0.01, ha="left", fontsize=9)


# Pinned memory


@style()
def pinning_plot() -> Figure:
    """A line for ordinary memory, with its detour through a buffer, and one for pinned memory."""
    figure = Figure((WIDTH, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, 10.8), ylim=(0, 4.5), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    _memory(axes, 1.15, 7.25, "memory of the machine")
    _memory(axes, 8.55, 10.75, "memory of the GPU")
    _way_to_gpu(axes, 2.85, "ordinary\nmemory", pinned=False)
    _way_to_gpu(axes, 0.95, "pinned\nmemory", pinned=True)
    return figure


def _memory(axes: Axes, left: float, right: float, title: str) -> None:
    look = {"facecolor": "#f6f6f6", "edgecolor": series_colour(1), "linewidth": 1}
    axes.add_patch(Rectangle((left, 0.08), right - left, 3.9, zorder=0, **look))
    axes.text(left, 4.12, title, weight="bold", va="bottom")


def _way_to_gpu(axes: Axes, height: float, name: str, pinned: bool) -> None:
    axes.text(0, height, name, va="center", weight="bold")
    _memory_box(axes, "memory", height, "batch", hatched=pinned)
    _memory_box(axes, "GPU", height, "batch", hatched=False)
    if pinned:
        _arrow(axes, "memory", "GPU", height, "the GPU fetches it;\nPython need not wait", 5.0)
        return
    _memory_box(axes, "buffer", height, "pinned buffer\nof the driver", hatched=True)
    _arrow(axes, "memory", "buffer", height, "1. the CPU\ncopies", None)
    _arrow(axes, "buffer", "GPU", height, "2. the GPU\nfetches it", None)


def _memory_box(axes: Axes, place: str, height: float, text: str, hatched: bool) -> None:
    """A block of memory; pinned memory is darker and has a heavy frame."""
    colour = series_colour(2) if hatched else series_colour(1)
    corner = (MIDDLES[place] - MEMORY_WIDTH / 2, height - MEMORY_HEIGHT / 2)
    look = {
        "facecolor": tint(colour, 0.35),
        "edgecolor": colour,
        "linewidth": 3 if hatched else 1.5,
    }
    axes.add_patch(Rectangle(corner, MEMORY_WIDTH, MEMORY_HEIGHT, **look))
    axes.text(MIDDLES[place], height, text, ha="center", va="center", fontsize=9.5)


def _arrow(
    axes: Axes, start: str, end: str, height: float, words: str, middle: float | None
) -> None:
    left, right = MIDDLES[start] + MEMORY_WIDTH / 2, MIDDLES[end] - MEMORY_WIDTH / 2
    look = {"arrowstyle": "-|>", "mutation_scale": 15, "color": INK, "linewidth": 1.6}
    axes.add_patch(FancyArrowPatch((left, height), (right, height), shrinkA=2, shrinkB=2, **look))
    middle = middle or (left + right) / 2
    axes.text(middle, height + 0.12, words, ha="center", va="bottom", fontsize=9.5)


if __name__ == "__main__":
    print(save(pinning_plot(), PINNING_FILE, PINNING_ALT))
