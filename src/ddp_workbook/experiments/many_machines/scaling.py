"""Speed-up and efficiency from a table of results: strong and weak scaling, apart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ddp_workbook.chapters.results import read_results
from ddp_workbook.experiments.many_machines.jobs import JOB_SCRIPTS
from ddp_workbook.experiments.many_machines.launchers import DATA_FOLDER
from ddp_workbook.page.display import PlainText
from manyranks import figures
from manyranks.errors import WorkbookError

STUDY = DATA_FOLDER / "scaling.csv"
OWN_RESULTS = JOB_SCRIPTS / "results.csv"
MODEL = ["program", "device", "width", "depth"]  # runs that may be compared are alike in these


def scaling(results: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Tables of strong and weak scaling: a row for each number of ranks, the fewest first.

    Strong: all ranks together have the same batch. Weak: each rank has the same number of samples.
    Where the table has several such series, the one with the most numbers of ranks counts.
    Speed-up is the throughput over that of the first row, efficiency the speed-up over the factor
    between their ranks. Where runs were repeated the median throughput counts.
    Raises WorkbookError if no model ran with two numbers of ranks.
    """
    candidates = [_of_model(group) for _, group in results.groupby(MODEL)]
    candidates = [tables for tables in candidates if tables]
    if not candidates:
        raise WorkbookError("There is no model here that ran with two different numbers of ranks.")
    return max(candidates, key=lambda tables: sum(map(len, tables.values())))


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


def read_study() -> dict[str, pd.DataFrame]:
    """The tables of the study that is recorded in data/many_machines/README.md."""
    return scaling(read_results(STUDY))


def own_study(path: Path = OWN_RESULTS) -> dict[str, pd.DataFrame]:
    """The tables of the reader's own jobs; empty where none ran, or not with several sizes."""
    if not path.exists():
        return {}
    try:
        return scaling(read_results(path))
    except WorkbookError:
        return {}


def joined_table(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The tables as one, with their names in a column, and columns named for people."""
    table = pd.concat(tables, names=["scaling", None]).reset_index(level=0)
    table["samples_per_second"] = table["samples_per_second"].round().astype(int)
    for column in ("speed-up", "efficiency"):
        table[column] = table[column].map("{:.2f}".format)
    names = {"batch_size": "global batch, samples", "samples_per_second": "samples/s"}
    return table.rename(columns=names).reset_index(drop=True)


@figures.house_style
def scaling_plot(tables: Mapping[str, pd.DataFrame]) -> figures.Picture:
    """Milliseconds of a step by ranks, a panel for each table of `scaling`.

    The first part of a bar is what perfect ranks would need; its share is the efficiency.
    """
    panels, words = {}, []
    for name, table in tables.items():
        step_ms = 1e3 * table["batch_size"] / table["samples_per_second"]
        ideal = step_ms * table["efficiency"]
        bars = pd.DataFrame({"ideal": ideal, "lost": (step_ms - ideal).clip(lower=0)})
        bars.index = [f"{ranks} rank{'s' * (ranks != 1)}" for ranks in table["ranks"]]
        panels[name] = bars
        words.append(
            f"{name}: "
            + ", ".join(
                f"{rank} {share:.0%}"
                for rank, share in zip(bars.index, table["efficiency"], strict=True)
            )
        )
    picture = figures.bars(
        panels, "milliseconds a step", "Time of a step", totals=lambda end: f"{end:.0f}"
    )
    picture.alt += f" Efficiency, {'; '.join(words)}."
    return picture


def own_study_plot() -> figures.Picture | PlainText:
    """The picture of the reader's own study, or that there is none yet."""
    own = own_study()
    return scaling_plot(own) if own else PlainText("No study of your own yet.")
