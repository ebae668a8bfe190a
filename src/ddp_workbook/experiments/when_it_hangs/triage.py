"""What an engineer sees of a hang without this workbook: stacks, the recorder, gloo's own error."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import torch
import torch.distributed as dist

import ddp_workbook

if TYPE_CHECKING:
    from ddp_workbook.notebook.display import TextTable

DUMPS = Path(__file__).parents[4] / "data" / "when_it_hangs" / "dumps.json"
LIMIT, LOOKED, LATE = 1.0, 0.5, 1.5  # seconds: gloo's limit, when stacks are written, the absence


def stuck() -> tuple[str, str]:
    """Rank 2 does not come to an all_reduce: this rank's stack meanwhile, and the error it gets."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=LIMIT))
    error = ""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback_later(LOOKED, file=file)
        if dist.get_rank() == 2:
            time.sleep(LATE)
        else:
            with contextlib.suppress(RuntimeError):
                try:
                    dist.all_reduce(torch.ones(1))
                except RuntimeError as failed:
                    error = str(failed)
                    raise
        faulthandler.cancel_dump_traceback_later()
        file.seek(0)
        frames = [line.strip() for line in file if __file__ in line or "time.sleep" in line]
    return frames[0].rpartition("/")[2] if frames else "", error


def stacks_and_errors() -> TextTable:
    """Where each of four ranks stands while it hangs, and what gloo says when its time is up."""
    found = ddp_workbook.launch(stuck, ranks=4)
    rows = [
        (rank, frame.replace('"', ""), error.partition(" ")[2] or "none")
        for rank, (frame, error) in enumerate(found)
    ]
    columns = ["rank", "where faulthandler finds it", "the error, after the limit of 1 s"]
    return ddp_workbook.text_table(pd.DataFrame(rows, columns=columns))


def dumps(job: str) -> list[list[dict]]:
    """What the flight recorder of each of four ranks held in a job that hung."""
    jobs = json.loads(DUMPS.read_text(encoding="utf-8"))
    return next(one["dumps"] for one in jobs if one["job"] == job)


def side_by_side(job: str) -> TextTable:
    """The world's calls: a row for each number, a column for each rank."""
    of_ranks = [
        {e["collective_seq_id"]: e for e in entries if e["process_group"][0] == "0"}
        for entries in dumps(job)
    ]
    rows = []
    for number in range(1, max(map(max, of_ranks)) + 1):
        cells = [cell(entries.get(number)) for entries in of_ranks]
        rows.append((number, *cells))
    columns = ["call", *(f"rank {rank}" for rank in range(len(of_ranks)))]
    return ddp_workbook.text_table(pd.DataFrame(rows, columns=columns))


def cell(entry: dict | None) -> str:
    """One call of one rank."""
    if entry is None:
        return "-"
    line = next(one["line"] for one in entry["frames"] if one["filename"] == "train.py")
    name = entry["profiling_name"].removeprefix("gloo:")
    return f"{name}, line {line}{'' if entry['retired'] else ', waits'}"
