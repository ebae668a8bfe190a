"""What a step of DataParallel costs beside computing, and when it pays."""

from collections.abc import Sequence

import pandas as pd

from ddp_workbook.experiments.data_parallel.step_times import (
    WORKERS,
    Size,
    in_fresh_processes,
    on_gpus,
    parts_of_replicas,
)
from ddp_workbook.recording.timing import summary

ADDING = "add gradients"
SECONDS = 0.2  # for the steps of one size, in each round


def parts_of_a_step(sizes: Sequence[Size], rounds: int = 2) -> pd.DataFrame:
    """Milliseconds of each part of a step on two devices: a row a size, a column a part.

    The fastest of all steps counts, part by part: other programs only make a part longer. On GPUs
    nn.DataParallel's gather brings the outputs together, and gradients are added in backward.
    """
    threads = None if on_gpus() else 1  # in each thread: one core plays one device
    turns = [
        in_fresh_processes(parts_of_replicas, sizes, SECONDS, WORKERS, min, threads=threads)[0]
        for _ in range(rounds)
    ]
    table = pd.DataFrame(
        [
            {part: min(parts[part] for parts in of_size) * 1e3 for part in of_size[0]}
            for of_size in zip(*turns, strict=True)
        ],
        index=pd.MultiIndex.from_tuples(sizes, names=Size._fields),
    )
    return table if on_gpus() else table.rename(columns={"gather": ADDING})


def in_milliseconds(times: pd.DataFrame) -> pd.DataFrame:
    """Median and quartiles of each candidate in milliseconds, and the ratio to the first one.

    Numbers are text of three digits or more, as the page shows them.
    """
    table = summary(times, baseline=times["candidate"].iloc[0])
    for column in ("q1", "median", "q3"):
        table[f"{column}, ms"] = [_text(seconds * 1e3) for seconds in table[column]]
    ratios = [_text(ratio) for ratio in table["ratio"]]
    return table.drop(columns=["n", "q1", "median", "q3", "ratio"]).assign(ratio=ratios)


def _text(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
