"""Plans as bars: bytes on a GPU by part beside its memory, compute beside network."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import rank_hatch, series_colour
from ddp_workbook.figures.style import INK, WIDTH, label_rows, style

GB = 10**9
PARTS = ("parameters", "gradients", "optimizer", "unsharded", "buckets", "copies", "activations")
LOOKS = (0, 1, 2, 3, 5, 6, 4)  # of the parts: the five that most plans have get their own colours
TIMES = ("compute", "network")
Parts = Mapping[str, int]  # bytes by part
Seconds = tuple[float, float]  # of compute, of network


@style()
def plans_plot(
    memory: int,
    parts: Mapping[str, Parts] | None = None,
    seconds: Mapping[str, Seconds] | None = None,
) -> Figure:
    """A row for each plan: bytes stacked by part, with a line at `memory`; and seconds of a step.

    Each of the two panels is drawn if it is given.
    """
    panels = [panel for panel in (parts, seconds) if panel]
    rows = [len(panel) * (1 if panel is parts else 1.6) for panel in panels]
    height = sum(0.85 + 0.42 * row for row in rows) + 0.3
    figure = Figure((WIDTH, height), layout="constrained")
    axes = figure.subplots(
        len(panels), 1, squeeze=False, height_ratios=[0.9 + 0.42 * r for r in rows]
    )
    for panel, one in zip(panels, axes[:, 0], strict=True):
        if panel is parts:
            _memory(one, parts, memory)
        else:
            _times(one, seconds)
    return figure


def alt_text_of_plans(
    memory: int,
    parts: Mapping[str, Parts] | None = None,
    seconds: Mapping[str, Seconds] | None = None,
) -> str:
    """The bars in words."""
    words = []
    for name, sizes in (parts or {}).items():
        each = ", ".join(f"{part} {size / GB:.1f} GB" for part, size in sizes.items())
        total = sum(sizes.values())
        fits = "fits into" if total <= memory else "does not fit into"
        words.append(f"{name}: {each}; {total / GB:.1f} GB in all, {fits} {memory / GB:.0f} GB.")
    for name, (compute, network) in (seconds or {}).items():
        words.append(f"{name}: {compute:.2f} s of compute, {network:.2f} s of network.")
    return " ".join(words)


def _memory(axes: Axes, parts: Mapping[str, Parts], memory: int) -> None:
    seen = [part for part in PARTS if any(part in sizes for sizes in parts.values())]
    for row, sizes in enumerate(parts.values()):
        left = 0.0
        for part in seen:
            size = sizes.get(part, 0) / GB
            look = _look(LOOKS[PARTS.index(part)])
            axes.barh(row, size, left=left, height=0.66, label=part if row == 0 else None, **look)
            left += size
    axes.axvline(memory / GB, color=INK, linestyle="--", linewidth=1.6)
    label_rows(axes, list(parts))
    axes.set_xlim(
        0, 1.05 * max(memory / GB, *(sum(sizes.values()) / GB for sizes in parts.values()))
    )
    axes.set_xlabel(f"GB on each GPU; dashed: its memory, {memory / GB:.0f} GB")
    axes.grid(axis="x")
    axes.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=len(seen),
        handlelength=1.6,
        fontsize=10,
    )


def _times(axes: Axes, seconds: Mapping[str, Seconds]) -> None:
    for row, pair in enumerate(seconds.values()):
        for which, time in enumerate(pair):
            look = _look(3 * which)
            label = TIMES[which] if row == 0 else None
            axes.barh(row + 0.36 * which - 0.18, time, height=0.32, label=label, **look)
    label_rows(axes, list(seconds))
    axes.set_xlabel("seconds: a step takes at least as long as the longer bar")
    axes.grid(axis="x")
    axes.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, handlelength=1.6, fontsize=10
    )


def _look(index: int) -> dict:
    colour = series_colour(index)
    return {"facecolor": colour, "hatch": rank_hatch(index), "edgecolor": "white", "linewidth": 0}
