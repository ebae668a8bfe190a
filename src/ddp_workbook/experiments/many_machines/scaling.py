"""Speed-up and efficiency from a table of results: strong and weak scaling, apart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ddp_workbook import figures
from ddp_workbook.errors import WorkbookError
from ddp_workbook.experiments.many_machines.jobs import JOB_SCRIPTS
from ddp_workbook.experiments.many_machines.launchers import RECORDED
from ddp_workbook.figures.palette import FAINT
from ddp_workbook.results import read_results

STUDY = RECORDED / "scaling.csv"
OWN = JOB_SCRIPTS / "results.csv"
MODEL = ["program", "device", "width", "depth"]  # runs that may be compared are alike in these


def scaling(results: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Tables of strong and weak scaling: a row for each number of ranks, the fewest first.

    Strong: all ranks together have the same batch. Weak: each rank has the same number of rows.
    Where the table has several such series, the one with the most numbers of ranks counts.
    Speed-up is the throughput over that of the first row, efficiency the speed-up over the factor
    between their ranks. Where runs were repeated the median throughput counts.
    Raises WorkbookError if no model ran with two numbers of ranks.
    """
    found = [_of_model(group) for _, group in results.groupby(MODEL)]
    found = [tables for tables in found if tables]
    if not found:
        raise WorkbookError("There is no model here that ran with two different numbers of ranks.")
    return max(found, key=lambda tables: sum(map(len, tables.values())))


def _of_model(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    series = {"strong": runs["batch_size"], "weak": runs["batch_size"] / runs["ranks"]}
    tables = {}
    for kind, alike in series.items():
        numbers = runs.groupby(alike)["ranks"].nunique()
        if numbers.max() > 1:
            tables[kind] = _table(runs[alike == numbers.idxmax()])
    return tables


def _table(runs: pd.DataFrame) -> pd.DataFrame:
    medians = runs.groupby(["ranks", "batch_size"], as_index=False)["samples_per_second"].median()
    first = medians.iloc[0]
    speed_up = medians["samples_per_second"] / first["samples_per_second"]
    efficiency = speed_up * first["ranks"] / medians["ranks"]
    return medians.assign(**{"speed-up": speed_up, "efficiency": efficiency})


def recorded_study() -> dict[str, pd.DataFrame]:
    """The tables of the study that is recorded in data/many_machines/README.md."""
    return scaling(read_results(STUDY))


def own_study(path: Path = OWN) -> dict[str, pd.DataFrame]:
    """The tables of the reader's own jobs; empty where none ran, or not with several sizes."""
    if not path.exists():
        return {}
    try:
        return scaling(read_results(path))
    except WorkbookError:
        return {}


def side_by_side(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The tables as one, with their names in a column, and numbers as words."""
    joined = pd.concat(tables, names=["scaling", None]).reset_index(level=0)
    digits = {"samples_per_second": "{:.0f}", "speed-up": "{:.2f}", "efficiency": "{:.2f}"}
    for column, form in digits.items():
        joined[column] = joined[column].map(form.format)
    return joined.reset_index(drop=True)


@figures.drawn
def scaling_plot(tables: Mapping[str, pd.DataFrame]) -> figures.Picture:
    """Speed-up and efficiency over the ranks, a line for each named table of `scaling`."""
    by_ranks = {name: table.set_index("ranks") for name, table in tables.items()}
    panels = {
        "speed-up, times one rank": pd.DataFrame({n: t["speed-up"] for n, t in by_ranks.items()}),
        "efficiency, share of perfect": pd.DataFrame(
            {n: t["efficiency"] for n, t in by_ranks.items()}
        ),
    }
    picture = figures.lines(panels, "", "Speed-up and efficiency over the ranks", share=False)
    left, right = picture.figure.axes
    ranks = list(panels["efficiency, share of perfect"].index)
    perfect = {"color": FAINT, "linestyle": "--", "linewidth": 1.6, "zorder": 0}
    left.plot([1, max(ranks)], [1, max(ranks)], **perfect)
    left.annotate("perfect", (max(ranks),) * 2, (-6, 2), textcoords="offset points", ha="right")
    right.axhline(1, **perfect)
    right.set_ylim(0, 1.15)
    left.set_ylim(0)
    for axes in (left, right):
        axes.set_xticks(ranks)
    lines = []
    for name, table in tables.items():
        points = [
            f"{row['ranks']:.0f} ranks {row['speed-up']:.2f} times and {row['efficiency']:.0%}"
            for _, row in table.iterrows()
        ]
        lines.append(f"{name}: " + ", ".join(points))
    picture.alt = "Speed-up and efficiency over the number of ranks. " + "; ".join(lines) + "."
    return picture


def own_picture() -> figures.Picture | str:
    """The picture of the reader's own study, or that there is none yet."""
    own = own_study()
    return scaling_plot(own) if own else "no study of your own yet"
