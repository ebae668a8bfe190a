"""What a step of DataParallel costs beside computing, and when it pays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from ddp_workbook import figures
from ddp_workbook.experiments.data_parallel.step_times import (
    WORKERS,
    Size,
    in_fresh_processes,
    on_gpus,
    parts_of_replicas,
)
from ddp_workbook.recording.timing import summary

if TYPE_CHECKING:
    from ddp_workbook.notebook.display import TextTable

ADDING = "add gradients"
OWN = ("compute", "optimizer", "backward and optimizer")  # what one process does, too
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


@figures.drawn
def parts(table: pd.DataFrame) -> figures.Picture:
    """A stacked bar for each size, all on one scale: milliseconds of each part of a step.

    The price at the end of a bar is the share of what only DataParallel does: all but OWN.
    """
    shares = price_shares(table)
    about = "Parts of a step on two devices, stacked"
    rows = table.copy()
    rows.index = [
        f"width {width}, depth {depth}, batch {batch}" for width, depth, batch in rows.index
    ]
    picture = figures.bars(rows, "milliseconds a step", about)
    longest = table.sum(axis=1).max()
    for row, (name, share) in enumerate(zip(rows.index, shares, strict=True)):
        end = table.iloc[row].sum() + longest * 0.01
        picture.axes.text(end, row, f"price {share:.0%}", va="center")
        picture.alt += f" At {name}, the price is {share:.0%}."
    picture.axes.set_xlim(0, longest * 1.17)
    picture.axes.set_title(
        "stand-in: CPU threads" if ADDING in table else "nn.DataParallel, 2 GPUs"
    )
    return picture


def price_shares(table: pd.DataFrame) -> list[float]:
    """For each size the share of a step that one process would not need."""
    own = table[[part for part in table if part in OWN]].sum(axis=1)
    return (1 - own / table.sum(axis=1)).tolist()


def in_milliseconds(times: pd.DataFrame) -> TextTable:
    """Median and quartiles of each candidate in milliseconds, and the ratio to the first one.

    Numbers are text of three digits or more, as the page shows them.
    """
    from ddp_workbook.notebook.display import text_table

    table = summary(times, baseline=times["candidate"].iloc[0])
    for column in ("q1", "median", "q3"):
        table[f"{column}, ms"] = [_text(seconds * 1e3) for seconds in table[column]]
    ratios = [_text(ratio) for ratio in table["ratio"]]
    table = table.drop(columns=["n", "q1", "median", "q3", "ratio"]).assign(ratio=ratios)
    return text_table(table)


def _text(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
