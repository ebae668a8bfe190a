"""What an engineer sees of a hang without this workbook: stacks, the recorder, gloo's own error."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

import pandas as pd
import torch
import torch.distributed as dist

import ddp_workbook

DUMPS = Path(__file__).parents[4] / "data" / "when_it_hangs" / "dumps.json"
GLOO_TIMEOUT_S, DUMP_AFTER_S, ABSENT_S = (
    1.0,
    0.5,
    1.5,
)  # seconds: gloo's limit, when stacks are written, the absence


def stack_and_error() -> tuple[str, str]:
    """Rank 2 does not come to an all_reduce: this rank's stack meanwhile, and the error it gets."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=GLOO_TIMEOUT_S))
    error = ""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback_later(DUMP_AFTER_S, file=file)
        if dist.get_rank() == 2:
            time.sleep(ABSENT_S)
        else:
            with contextlib.suppress(RuntimeError):
                try:
                    dist.all_reduce(torch.ones(1))
                except RuntimeError as failure:
                    error = str(failure)
                    raise
        faulthandler.cancel_dump_traceback_later()
        file.seek(0)
        frames = [line.strip() for line in file if __file__ in line or "time.sleep" in line]
    return frames[0].rpartition("/")[2] if frames else "", error


def stacks_and_errors() -> ddp_workbook.TextTable:
    """Where each of four ranks stands while it hangs, and what gloo says when its time is up."""
    results = ddp_workbook.launch(stack_and_error, ranks=4)
    rows = [
        (rank, frame.replace('"', ""), error.partition(" ")[2] or "none")
        for rank, (frame, error) in enumerate(results)
    ]
    columns = ["rank", "where faulthandler finds it", "the error, after the limit of 1 s"]
    return ddp_workbook.text_table(pd.DataFrame(rows, columns=columns))


def dumps(job: str) -> list[list[dict]]:
    """What the flight recorder of each of four ranks held in a job that hung."""
    jobs = json.loads(DUMPS.read_text(encoding="utf-8"))
    return next(record["dumps"] for record in jobs if record["job"] == job)


def calls_by_rank(job: str) -> ddp_workbook.TextTable:
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


def dump_while_hanging(folder: str, fix_group_name: bool) -> None:
    """Leave what this rank's recorder holds in a file, while rank 2 is missing in a fourth call."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=3 * GLOO_TIMEOUT_S))
    writer = threading.Timer(GLOO_TIMEOUT_S, write_dump, (folder, fix_group_name))
    writer.start()
    with contextlib.suppress(RuntimeError):
        for _ in range(3 if dist.get_rank() == 2 else 4):
            dist.all_reduce(torch.ones(8))
        time.sleep(3 * GLOO_TIMEOUT_S)
    writer.join()


def write_dump(folder: str, fix_group_name: bool) -> None:
    """Write the recorder's calls as NCCL's watchdog would, for `torchfrtrace`."""
    dump = pickle.loads(torch._C._distributed_c10d._dump_fr_trace())
    if fix_group_name:  # gloo files the world under the name "", its calls under "0"
        world = str([*range(dist.get_world_size())])
        dump["pg_config"] = {"0": {"name": "0", "desc": "default_pg", "ranks": world}}
    Path(folder, f"rank_{dist.get_rank()}").write_bytes(pickle.dumps(dump))


def fr_trace_report(fix_group_name: bool = True) -> str:
    """What PyTorch's own analyser says of the dumps of four ranks; its error, if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        ddp_workbook.launch(dump_while_hanging, folder, fix_group_name, ranks=4)
        command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace"]
        run = subprocess.run(
            [*command, folder, "-p", "rank_"], capture_output=True, text=True, timeout=60
        )
    if run.returncode:
        return run.stderr.strip().splitlines()[-1]
    parts = (run.stdout + run.stderr).partition("Not all ranks")
    return (parts[1] + parts[2]).partition("collective stack trace")[0].strip()


def cell(entry: dict | None) -> str:
    """One call of one rank."""
    if entry is None:
        return "-"
    line = next(frame["line"] for frame in entry["frames"] if frame["filename"] == "train.py")
    name = entry["profiling_name"].removeprefix("gloo:")
    return f"{name}, line {line}{'' if entry['retired'] else ', waits'}"
