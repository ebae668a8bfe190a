"""A step on a GPU in each precision (`data/gpu`), as page 10 draws it."""

from ddp_workbook.experiments.gpu_tables import recorded_gpu
from manyranks import figures

WIDTH = 2048  # of the model


@figures.house_style
def precision_plot() -> "figures.Picture":
    """A bar a precision: milliseconds of one step of the larger model."""
    table = recorded_gpu("precision").query("width == @WIDTH")
    times = table.set_index("candidate")[["median_ms"]].rename(columns={"median_ms": "step"})
    about = f"One training step on {table['machine'].iloc[0].partition(',')[0]}"
    picture = figures.bars(
        times,
        f"milliseconds a step; recorded {table['date'].iloc[0]}",
        about,
        by="candidate",
        totals=lambda end: f"{end:.0f}",
    )
    picture.axes.set_title(about, loc="left")
    return picture
