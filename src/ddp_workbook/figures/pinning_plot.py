"""How a tensor gets from ordinary and from pinned memory to a GPU: a drawing, no measurement.

    python -m ddp_workbook.figures.pinning_plot

writes it to figs/samplers_pinning.svg.
"""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from ddp_workbook.figures.palette import series_colour, tint
from ddp_workbook.figures.plots import WIDTH
from ddp_workbook.figures.style import INK, save, style

FILE = Path(__file__).parents[3] / "figs" / "samplers_pinning.svg"
ALT = (
    "Two ways of a batch from the machine's memory to a GPU. "
    "From ordinary memory it takes two copies: the CPU copies it into a small buffer of pinned "
    "memory, and the GPU fetches it from there; Python waits until the batch has left its place. "
    "From pinned memory the GPU fetches it in one copy, and with non_blocking=True Python goes on "
    "meanwhile."
)
PLACES = {"memory": 2.35, "buffer": 6.05, "GPU": 9.7}  # middles of the three columns
BOX_WIDTH, BOX_HEIGHT = 1.9, 0.78


@style()
def pinning_plot() -> Figure:
    """The drawing: one line from ordinary memory with its detour, one from pinned memory."""
    figure = Figure((WIDTH, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, 10.8), ylim=(0, 4.5), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    _area(axes, 1.15, 7.25, "memory of the machine")
    _area(axes, 8.55, 10.75, "memory of the GPU")
    _line(axes, 2.85, "ordinary\nmemory", pinned=False)
    _line(axes, 0.95, "pinned\nmemory", pinned=True)
    return figure


def _area(axes: Axes, left: float, right: float, title: str) -> None:
    look = {"facecolor": "#f6f6f6", "edgecolor": series_colour(1), "linewidth": 1}
    axes.add_patch(Rectangle((left, 0.08), right - left, 3.9, zorder=0, **look))
    axes.text(left, 4.12, title, weight="bold", va="bottom")


def _line(axes: Axes, height: float, name: str, pinned: bool) -> None:
    axes.text(0, height, name, va="center", weight="bold")
    _box(axes, "memory", height, "batch", hatched=pinned)
    _box(axes, "GPU", height, "batch", hatched=False)
    if pinned:
        _arrow(axes, "memory", "GPU", height, "the GPU fetches it;\nPython need not wait", 5.0)
        return
    _box(axes, "buffer", height, "pinned buffer\nof the driver", hatched=True)
    _arrow(axes, "memory", "buffer", height, "1. the CPU\ncopies", None)
    _arrow(axes, "buffer", "GPU", height, "2. the GPU\nfetches it", None)


def _box(axes: Axes, place: str, height: float, text: str, hatched: bool) -> None:
    """A piece of memory; pinned memory is darker and has a heavy frame."""
    colour = series_colour(2) if hatched else series_colour(1)
    corner = (PLACES[place] - BOX_WIDTH / 2, height - BOX_HEIGHT / 2)
    look = {
        "facecolor": tint(colour, 0.35),
        "edgecolor": colour,
        "linewidth": 3 if hatched else 1.5,
    }
    axes.add_patch(Rectangle(corner, BOX_WIDTH, BOX_HEIGHT, **look))
    axes.text(PLACES[place], height, text, ha="center", va="center", fontsize=9.5)


def _arrow(
    axes: Axes, start: str, end: str, height: float, words: str, middle: float | None
) -> None:
    ends = (PLACES[start] + BOX_WIDTH / 2, height), (PLACES[end] - BOX_WIDTH / 2, height)
    look = {"arrowstyle": "-|>", "mutation_scale": 15, "color": INK, "linewidth": 1.6}
    axes.add_patch(FancyArrowPatch(*ends, shrinkA=2, shrinkB=2, **look))
    middle = middle or (ends[0][0] + ends[1][0]) / 2
    axes.text(middle, height + 0.12, words, ha="center", va="bottom", fontsize=9.5)


if __name__ == "__main__":
    print(save(pinning_plot(), FILE, ALT))
