"""Pictures: the house style, its colours, four shapes and steppers. Nothing here knows a chapter.

    from ddp_workbook import figures

    @figures.drawn
    def memory(held: pd.DataFrame) -> figures.Picture:
        return figures.bars(held, "kB a rank holds", "What each rank holds")

Modules that draw are imported by ranks, too: matplotlib is imported with the first picture.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:  # for editors and mypy
    # ruff: noqa: F401
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle
    from matplotlib.ticker import MaxNLocator

    from ddp_workbook.figures.bar_chart import bars, stack
    from ddp_workbook.figures.boxes import arrow, box, label_ranks, sheet
    from ddp_workbook.figures.images import images_plot
    from ddp_workbook.figures.line_chart import lines
    from ddp_workbook.figures.slider import Stepper, stepper
    from ddp_workbook.figures.style import WIDTH, FillStyle, Picture, beside, label_rows, number
    from ddp_workbook.figures.time_lanes import lanes
    from ddp_workbook.figures.timings import speed_up_plot, step_time_plot

HOMES = {
    **dict.fromkeys(("bars", "stack"), "bar_chart"),
    "lanes": "time_lanes",
    "lines": "line_chart",
    **dict.fromkeys(("sheet", "box", "arrow", "label_ranks"), "boxes"),
    **dict.fromkeys(("WIDTH", "Look", "Picture", "beside", "label_rows", "number"), "style"),
    **dict.fromkeys(("step_time_plot", "speed_up_plot"), "timings"),
    "images_plot": "images",
    **dict.fromkeys(("Stepper", "stepper"), "slider"),
    # matplotlib's own, for what one picture alone needs
    **dict.fromkeys(("Patch", "Rectangle"), "matplotlib.patches"),
    "Axes": "matplotlib.axes",
    "Figure": "matplotlib.figure",
    "MaxNLocator": "matplotlib.ticker",
}
Given = ParamSpec("Given")
Drawn = TypeVar("Drawn")


def drawn(draw: Callable[Given, Drawn]) -> Callable[Given, Drawn]:
    """For a function that draws: it runs with the workbook's matplotlib settings."""

    @functools.wraps(draw)
    def in_house_style(*args: Given.args, **kwargs: Given.kwargs) -> Drawn:
        from ddp_workbook.figures.style import style

        with style():
            return draw(*args, **kwargs)

    return in_house_style


def __getattr__(name: str):
    """Import one of the names above from its module (PEP 562)."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = HOMES[name]
    module = import_module(home if home.startswith("matplotlib.") else f"{__name__}.{home}")
    globals()[name] = getattr(module, name)
    return globals()[name]
