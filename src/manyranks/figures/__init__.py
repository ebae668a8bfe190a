"""Pictures: the house style, its colours, four shapes and steppers. Nothing here knows a chapter.

    from manyranks import figures

    @figures.house_style
    def memory(held: pd.DataFrame) -> figures.Picture:
        return figures.bars(held, "kB a rank holds", "What each rank holds")

Modules that draw are imported by ranks, too: matplotlib is imported with the first picture.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from manyranks.lazy_names import lazy_names

if TYPE_CHECKING:  # imported with the first picture
    # ruff: noqa: F401
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle
    from matplotlib.ticker import MaxNLocator

    from manyranks.figures.bar_chart import bars, stack
    from manyranks.figures.boxes import arrow, box, label_ranks, sheet
    from manyranks.figures.images import images_plot
    from manyranks.figures.line_chart import lines
    from manyranks.figures.slider import Stepper, stepper
    from manyranks.figures.style import (
        WIDTH,
        FillStyle,
        Picture,
        beside,
        label_rows,
        name_looks,
        number,
    )
    from manyranks.figures.time_lanes import lanes
    from manyranks.figures.timings import speed_up_plot, step_time_plot

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def house_style(draw: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """For a function that draws: it runs with the workbook's matplotlib settings."""

    @functools.wraps(draw)
    def in_house_style(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        from manyranks.figures.style import style

        with style():
            return draw(*args, **kwargs)

    return in_house_style


__getattr__, __dir__, __all__ = lazy_names(__name__)
