"""Five wrong schedules given to PyTorch as they are: which of them it refuses, when, in what words.

The workbook's own reader of schedules would stop four of them before.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import torch.nn.functional as F

from ddp_workbook.experiments.model_parallel.pipeline import EQUAL, TIMEOUT_S, run_rank
from ddp_workbook.judging.pipeline_runs import load
from ddp_workbook.judging.pipeline_schedules import parse, split
from manyranks.errors import RankFailed
from manyranks.launcher.launch import launch

MICRO_BATCHES = 2
RIGHT = "F0 F1 B0 B1"
CASES = {  # the lines of two ranks with a stage each
    "a cell is missing": (RIGHT, "F0 F1 B0"),
    "a backward before its forward": (RIGHT, "B0 F0 F1 B1"),
    "each rank waits for the other": ("F0 B0 F1 B1", "F1 B1 F0 B0"),
    "a cell twice": (RIGHT, "F0 F0 F1 B0 B1"),
    "another order of the last stage's forwards": (RIGHT, "F1 F0 B0 B1"),
}


def what_pytorch_says() -> pd.DataFrame:
    """A row for each of CASES."""
    rows = {}
    for mistake, lines in CASES.items():
        found, words = outcome(lines)
        rows[mistake] = dict(zip(("rank 0", "rank 1"), lines, strict=True)) | {
            "found": found,
            "words": words,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def outcome(lines: tuple[str, ...]) -> tuple[str, str]:
    """When PyTorch finds the mistake, and its words; without any, what is wrong."""
    rows = [[str(parse(word, rank)) for word in split(line)] for rank, line in enumerate(lines)]
    # To read a schedule, PyTorch asks a stage for no more than these numbers.
    stage: Any = SimpleNamespace(group_rank=0, group_size=len(rows), num_stages=len(rows))
    try:
        load([stage], rows, MICRO_BATCHES, F.cross_entropy)
    except AssertionError as refusal:
        first, *_ = str(refusal).splitlines()
        return "when it is read", " ".join(first.split())
    try:
        settings = rows, range(len(rows)), MICRO_BATCHES, 0.0
        runs = launch(run_rank, *settings, ranks=len(rows), timeout=TIMEOUT_S)
    except RankFailed as failure:
        return f"in the step, by rank {failure.rank}", failure.reason.partition(": ")[2]
    differences = {stage: off for run in runs for stage, off in run.differences.items()}
    wrong = [f"stage {stage} by {off:.0e}" for stage, off in differences.items() if off > EQUAL]
    return "never", f"no words, but gradients are off in {', '.join(wrong)}"
