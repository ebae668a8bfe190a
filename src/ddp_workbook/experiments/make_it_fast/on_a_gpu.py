"""Two of the measurements on an H100 (`data/gpu`), as page 10 shows them."""

import ddp_workbook
from ddp_workbook.experiments.one_gpu import recorded_gpu
from manyranks import figures

WIDTH, MEBIBYTES = 2048, 256  # of the model, and of a copy


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


def copies_table() -> "ddp_workbook.TextTable":
    """How fast a batch of 256 MiB goes to the GPU, and when Python goes on."""
    table = recorded_gpu("copies").query("mebibytes == @MEBIBYTES")
    shown = table[["host_memory", "non_blocking", "median_gb_per_s", "returns_after_ms"]]
    names = ["host memory", "non_blocking", "GB/s", ".to(device) returns after, ms"]
    return ddp_workbook.text_table(shown.set_axis(names, axis=1))
