"""Where the time goes when a training is interrupted: measured once, computed for many."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Sequence
from typing import Any

import pandas as pd

import ddp_workbook
from ddp_workbook.experiments.checkpoint_and_recover import traced_training
from ddp_workbook.experiments.checkpoint_and_recover.elastic import empty_folder, run_with_kill
from ddp_workbook.experiments.checkpoint_and_recover.save_interval import (
    HOUR,
    MINUTE,
    PUBLISHED_RUNS,
    mtbf_s,
)
from manyranks import figures
from manyranks.errors import RankFailed
from manyranks.launcher.launch import launch

KILL_AFTER_STEP, PACE = (
    17,
    0.1,
)  # the step after which rank 1 is killed; seconds that a step is made longer
SIZES = (512, 2048, 16_384)  # GPUs
# What each part is, and what makes it shorter.
PARTS = ("detection", "restart", "loading", "computed again")


def measured_parts() -> pd.DataFrame:
    """Seconds of each part, a row for each way to save and to start again."""
    return pd.DataFrame(
        {
            "torchrun, save every 10": by_torchrun(10),
            "torchrun, save every 2": by_torchrun(2),
            "launch, save every 10": by_launch(10),
        }
    ).T


def by_torchrun(every: int) -> dict[str, float]:
    """Rank 1 of 2 is killed, and torchrun starts both again."""
    run = run_with_kill(KILL_AFTER_STEP, "goodput", every, "--pace", str(PACE))
    log = rows([line.text for line in run.lines])
    arrivals = [
        line.time for line in run.lines if line.text.startswith(traced_training.EVENT_PREFIX)
    ]
    log_start = log["time"].iloc[0] - arrivals[0]  # what torchrun's log counts from
    detection_time = next(line.time for line in run.lines if "attempts left" in line.text)
    return parts(log, log_start + detection_time)


def by_launch(every: int) -> dict[str, float]:
    """The same by a loop around `launch`, whose processes have imported torch before."""
    run: dict[str, Any] = {"epochs": 1, "every": every, "pace": PACE}
    run["saved"] = str(empty_folder("goodput"))
    with contextlib.redirect_stdout(io.StringIO()) as output:
        with contextlib.suppress(RankFailed):
            launch(traced_training.train, ("rank-1-dies", KILL_AFTER_STEP), ranks=2, **run)
        detection_time = time.time()
        launch(traced_training.train, ranks=2, **run)
    return parts(rows(output.getvalue().splitlines()), detection_time)


def rows(lines: Sequence[str]) -> pd.DataFrame:
    """What rank 0 has said."""
    events = [
        json.loads(line.partition(traced_training.EVENT_PREFIX)[2])
        for line in lines
        if traced_training.EVENT_PREFIX in line
    ]
    return pd.DataFrame([row for row in events if row["RANK"] == 0])


def parts(log: pd.DataFrame, detection_time: float) -> dict[str, float]:
    """From the step after which a rank died to the moment at which it is done again."""

    def time_of(event: str, step: int | None = None) -> float:
        matches = log[(log["event"] == event) & ((log["step"] == step) | (step is None))]
        return matches["time"].iloc[-1]

    death_time = log[log["step"] == KILL_AFTER_STEP]["time"].iloc[0] + PACE
    ends = (
        detection_time,
        time_of("joined"),
        time_of("loaded"),
        time_of("step", KILL_AFTER_STEP) + PACE,
    )
    return dict(zip(PARTS, pd.Series([death_time, *ends]).diff().iloc[1:].clip(0), strict=True))


@figures.house_style
def measured_plot(seconds: pd.DataFrame) -> figures.Picture:
    """A bar for each way, and its sum."""
    unit = "seconds from the kill until all steps are done again"
    about = "What one interruption costs"
    return figures.bars(seconds, unit, about, totals=lambda total: f"{total:.1f} s")


# Many interruptions, computed


def shares(
    gpus: int, detection: float, restart: float, loading: float, every: float, saving: float
) -> dict[str, float]:
    """The parts of all time, 0 to 1, for seconds of each; `every` from save to save.

    An interruption costs half of `every` on average.
    """
    costs = dict(zip(PARTS, (detection, restart, loading, every / 2), strict=True))
    of_time = {part: seconds / mtbf_s(gpus) for part, seconds in costs.items()}
    rest = max(1 - sum(of_time.values()), 0.0)
    training = rest / (1 + saving / every)
    return {"training": training, "saving": rest - training} | of_time


def play_goodput() -> ddp_workbook.Play:
    """Sliders for each part; a bar for each number of GPUs."""
    seconds = ddp_workbook.slider
    return ddp_workbook.play(
        shares_of_sizes,
        shares_plot,
        ranks=None,
        stills=[{}, {"every": 5}, {"every": 5, "saving": 1, "detection": 10}],
        detection=seconds("detection, s", (1, 10, 60, 600, 3600), 600),
        restart=seconds("restart, s", (10, 60, 300, 600, 1800), 600),
        loading=seconds("loading, s", (1, 10, 60, 300), 60),
        every=seconds("from save to save, min", (1, 5, 20, 60, 180), 60),
        saving=seconds("training stands for a save, s", (0.1, 1, 10, 60, 300), 60),
    )


def shares_of_sizes(
    detection: float, restart: float, loading: float, every: float, saving: float
) -> pd.DataFrame:
    """In percent, a row a number of GPUs."""
    shares_by_size = {
        f"{gpus:,} GPUs": shares(gpus, detection, restart, loading, every * MINUTE, saving)
        for gpus in SIZES
    }
    return 100 * pd.DataFrame(shares_by_size).T


@figures.house_style
def shares_plot(table: pd.DataFrame, **controls: float) -> figures.Picture:
    """What is left for training, in words beside it."""
    picture = figures.bars(table, "% of the time", "Where the time goes")
    picture.axes.set_xlim(0, 100)
    words = f"Goodput on {table.index[-1]}: {table['training'].iloc[-1]:.1f} %"
    picture.axes.set_title(words, loc="left")
    picture.alt += f" {words}."
    return picture


def published_goodput() -> pd.DataFrame:
    """What others have reported; the page links the sources."""
    failures, days, gpus = PUBLISHED_RUNS["Llama 3 405B"]
    hours = 24 * days / failures
    return pd.DataFrame(
        [
            (
                "Llama 3 405B",
                f"{gpus:,} H100",
                f"one in {hours:.1f} h",
                "above 90 %",
            ),
            ("Gemini Ultra", "TPU v4, several sites", "not reported", "85 %, then 97 %"),
            ("BLOOM", "384 A100", "not reported", f"saves alone: {40 / (3 * HOUR):.2%} lost"),
        ],
        columns=["training", "on", "unexpected interruptions", "goodput"],
    )
