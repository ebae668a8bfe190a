"""Chapter 05: what ranks hold before and after a collective."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddp_workbook.figures.collectives.boxes import (
    GAP,
    HEAD,
    HEIGHT,
    LABEL,
    LEFT,
    MIDDLE,
    PITCH,
    RIGHT,
    draw_rows,
    name_rows,
    sheet,
)
from ddp_workbook.figures.holdings import Row, before_and_after, held, row_text
from ddp_workbook.figures.style import INK, WIDTH, style

STAGE_BOX, STAGE = 0.55, 1.62  # inches: of a box in a row of stages, and of a stage at least
ARROW = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.4}


def collective_plot(moved: Sequence, title: str = "") -> Figure:
    """The ranks' boxes before and after, a row a rank; `moved` is what `launch` returned.

    For each rank that is a pair (before, after) of tensors, lists of tensors, numbers or None.
    Raises ValueError for more ranks or numbers than a picture can show.
    """
    return collectives_plot({title: moved})


@style()
def collectives_plot(named: Mapping[str, Sequence]) -> Figure:
    """Several collectives, one below the other, in the same style."""
    sides = {name: before_and_after(moved) for name, moved in named.items()}
    heights = [
        HEAD * (1 + bool(name)) + PITCH * len(before) + 0.08 for name, (before, _) in sides.items()
    ]
    axes, top = sheet(WIDTH, sum(heights)), 0.0
    for (name, (before, after)), height in zip(sides.items(), heights, strict=True):
        _both_sides(axes, top, name, before, after)
        top += height
    return axes.figure


def alt_text_of_collectives(named: Mapping[str, Sequence]) -> str:
    """What each rank held before and after each collective."""
    return " ".join(alt_text_of_moves(moved, name) for name, moved in named.items())


def alt_text_of_moves(moved: Sequence, title: str = "What the ranks hold") -> str:
    """What each rank held before and after, in one line: the alt text of the picture."""
    before, after = before_and_after(moved)
    each = [
        f"rank {rank}: {row_text(old)} before, {row_text(new)} after"
        for rank, (old, new) in enumerate(zip(before, after, strict=True))
    ]
    return f"{title}. {'; '.join(each)}."


@style()
def stages_plot(stages: Mapping[str, Sequence]) -> Figure:
    """What the ranks hold, stage after stage, from left to right; colours follow the first stage.

    `stages` has for each title what each rank holds: tensors, lists of tensors, or None.
    """
    columns = {title: [held(one) for one in of_ranks] for title, of_ranks in stages.items()}
    start, left = next(iter(columns.values())), LEFT
    axes = sheet(WIDTH, 2 * HEAD + PITCH * len(start))
    name_rows(axes, len(start), 2 * HEAD)
    middle = 2 * HEAD + (len(start) - 1) * PITCH / 2 + HEIGHT / 2
    for title, rows in columns.items():
        longest = max(rows, key=lambda row: sum(map(len, row)))
        room = STAGE_BOX * sum(map(len, longest)) + GAP * (len(longest) - 1)
        if left > LEFT:
            axes.annotate("", (left - 0.06, middle), (left - 0.38, middle), arrowprops=ARROW)
        axes.text(left, HEAD, title, va="center", weight="bold")
        draw_rows(axes, rows, start, (left, 2 * HEAD), room=room)
        left += max(room, STAGE) + 0.42
    return axes.figure


def alt_text_of_stages(stages: Mapping[str, Sequence]) -> str:
    """What each rank holds at each stage."""
    texts = [
        f"{title}: "
        + "; ".join(f"rank {rank} {row_text(held(one))}" for rank, one in enumerate(of_ranks))
        for title, of_ranks in stages.items()
    ]
    return f"What the ranks hold, stage after stage. {'. '.join(texts)}."


def _both_sides(
    axes: Axes, top: float, name: str, before: Sequence[Row], after: Sequence[Row]
) -> None:
    if name:
        axes.text(LABEL, top + HEAD / 2, name, va="center", weight="bold")
        top += HEAD
    axes.text(LEFT, top + HEAD / 2, "before", va="center", size=10)
    axes.text(RIGHT, top + HEAD / 2, "after", va="center", size=10)
    top += HEAD
    name_rows(axes, len(before), top)
    middle = top + (len(before) - 1) * PITCH / 2 + HEIGHT / 2
    axes.annotate("", (MIDDLE + 0.16, middle), (MIDDLE - 0.16, middle), arrowprops=ARROW)
    draw_rows(axes, before, before, (LEFT, top))
    draw_rows(axes, after, before, (RIGHT, top))
