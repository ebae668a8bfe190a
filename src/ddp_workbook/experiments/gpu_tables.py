"""The tables in `data/gpu`, as pages show them; `make gpu` measures and records them.

A page shows a table from the commit on that adds it, and the sentences below it say what it shows.
"""

from pathlib import Path

import pandas as pd

from ddp_workbook.page.display import TextTable, text_table

FOLDER = Path(__file__).parents[3] / "data" / "gpu"
MODEL = ("width", "depth", "batch")
COLUMNS = {  # what pages show of a table
    "activations": ("batch", "checkpointing", "activation_bytes", "peak_bytes", "median_ms"),
    "precision": (*MODEL, "candidate", "median_ms", "times_as_fast"),
    "one_rank": (*MODEL, "candidate", "median_ms", "times_as_long"),
    "real_run": (
        "checkpointing", "compiled", "peak_bytes", "median_ms", "tokens_per_s", "mfu_percent",
    ),
    "copies": (
        "mebibytes", "host_memory", "non_blocking", "median_gb_per_s", "returns_after_ms",
    ),
}  # fmt: skip
HEADINGS = {  # of columns whose names are not words; bytes are shown in GB, of 10^9 bytes
    "candidate": "way",
    "activation_bytes": "kept for backward, GB",
    "peak_bytes": "peak, GB",
    "median_ms": "a step, ms",
    "times_as_fast": "times as fast",
    "times_as_long": "times as long",
    "tokens_per_s": "tokens a second",
    "mfu_percent": "MFU, %",
    "mebibytes": "MiB",
    "host_memory": "host memory",
    "median_gb_per_s": "GB a second",
    "returns_after_ms": "the call returns after, ms",
}


def recorded_gpu(name: str, folder: Path = FOLDER) -> pd.DataFrame:
    """A recorded table, such as "memory"; data/gpu/README.md explains its columns."""
    return pd.read_csv(folder / f"{name}.csv")


def recorded_gpu_table(name: str, folder: Path = FOLDER, **only: float) -> TextTable:
    """A recorded table as a page shows it, below its machine.

    `only` selects rows, as mebibytes=256.
    """
    table = recorded_gpu(name, folder)
    for column, value in only.items():
        table = table[table[column] == value]
    columns = [*COLUMNS[name]]
    of_bytes = [column for column in columns if column.endswith("_bytes")]
    shown = table[columns].assign(**{each: table[each] / 1e9 for each in of_bytes})
    caption = f"{table['machine'].iloc[0]}, {table['date'].iloc[0]}"
    return text_table(shown.rename(columns=HEADINGS), caption)
