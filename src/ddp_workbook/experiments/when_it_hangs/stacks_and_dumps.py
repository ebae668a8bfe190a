"""What an engineer sees of a hang without this workbook: stacks, the recorder, gloo's own error."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import pickle
import re
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist

import ddp_workbook
from ddp_workbook.experiments.when_it_hangs import absent_rank
from ddp_workbook.page.display import PlainText

DUMPS = Path(__file__).parents[4] / "data" / "when_it_hangs" / "dumps.json"
# In seconds: gloo's limit, when the stacks are written, and how long rank 2 stays away.
GLOO_TIMEOUT_S, DUMP_AFTER_S, ABSENT_S = 1.0, 0.5, 1.5
PREFIX = "comm_lib_trace_rank_"  # of the files that NCCL's watchdog writes (torch 2.13)


class Hang(NamedTuple):
    """What four ranks left of a hang: the stack of each, and the error that it got ("" if none)."""

    of_ranks: list[tuple[str, str]]

    def errors(self) -> ddp_workbook.TextTable:
        """What gloo said on each rank when its time was up."""
        rows = [(rank, error or "none") for rank, (_, error) in enumerate(self.of_ranks)]
        columns = ["rank", f"its error, after gloo's limit of {GLOO_TIMEOUT_S:g} s"]
        return ddp_workbook.text_table(pd.DataFrame(rows, columns=columns))

    def stacks(self, *ranks: int) -> PlainText:
        """What faulthandler wrote on these ranks, from PyTorch's innermost frame to the program."""
        return PlainText("\n\n".join(f"rank {rank}\n{self.of_ranks[rank][0]}" for rank in ranks))


def observe_hang() -> Hang:
    """Run `absent_rank` on four ranks until gloo gives up."""
    return Hang(ddp_workbook.launch(stack_and_error, ranks=4))


def stack_and_error() -> tuple[str, str]:
    """A worker: this rank's stack while rank 2 stays away, and the error that ends the wait."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=GLOO_TIMEOUT_S))
    error = ""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback_later(DUMP_AFTER_S, file=file)
        try:
            absent_rank.step(ABSENT_S)
        except RuntimeError as failure:
            error = str(failure).rpartition("] ")[2]  # without the place in gloo's sources
        faulthandler.cancel_dump_traceback_later()
        file.seek(0)
        return program_stack(file.read()), error


def program_stack(dump: str) -> str:
    """The frames that lead into `absent_rank`, innermost first, with short paths."""
    (thread,) = (part for part in dump.split("\n\n") if absent_rank.__file__ in part)
    frames = [line for line in thread.splitlines() if line.startswith("  File ")]
    own = [number for number, line in enumerate(frames) if absent_rank.__file__ in line]
    return "\n".join(
        re.sub(r'"[^"]*?(?:site-packages/|(?=[^/"]*"))', '"', line)
        for line in frames[: own[-1] + 1]
    )


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
    Path(folder, f"{PREFIX}{dist.get_rank()}").write_bytes(pickle.dumps(dump))


def fr_trace_report(fix_group_name: bool = True) -> str:
    """What PyTorch's own analyser says of the dumps of four ranks; its error, if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        ddp_workbook.launch(dump_while_hanging, folder, fix_group_name, ranks=4)
        command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace"]
        run = subprocess.run(
            [*command, folder, "-p", PREFIX], capture_output=True, text=True, timeout=60
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
