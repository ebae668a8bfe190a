"""What one rank holds with DDP, beside one process: stacked bars by part."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from ddp_workbook.figures.palette import rank_hatch, series_colour
from ddp_workbook.figures.style import WIDTH, label_rows, style

MB = 1e6


@style()
def memory_plot(held: Mapping[str, Mapping[str, int]]) -> Figure:
    """A bar for each way of training (the keys), stacked by part, in MB of one rank."""
    figure = Figure((WIDTH, 1.3 + 0.42 * len(held)), layout="constrained")
    axes = figure.subplots()
    parts = list(next(iter(held.values())))
    for row, sizes in enumerate(held.values()):
        left = 0.0
        for look, part in enumerate(parts):
            width = sizes[part] / MB
            colours = {"color": series_colour(look), "hatch": rank_hatch(look)}
            axes.barh(
                row, width, left=left, height=0.66, label=part if not row else None, **colours
            )
            left += width
        axes.text(left, row, f" {left:.2f}", va="center")
    label_rows(axes, list(held))
    axes.set_xlabel("MB that a rank holds in a step")
    axes.margins(x=0.08)
    figure.legend(loc="outside upper left", ncols=len(parts), handlelength=1.4, columnspacing=1.2)
    return figure


def alt_text_of_memory(held: Mapping[str, Mapping[str, int]]) -> str:
    """The bars in words, in MB."""
    words = []
    for way, sizes in held.items():
        parts = ", ".join(f"{part} {size / MB:.2f}" for part, size in sizes.items() if size)
        words.append(f"{way}: {parts}; together {sum(sizes.values()) / MB:.2f}")
    return "Stacked bars, in MB. " + ". ".join(words) + "."
