"""Make the folder of a run on rank 0, and tell every rank its path, or that there is none.

Each call of `make_folder()` makes a new folder, which takes a while, and returns its path: a string
of any length, with any characters. All ranks call your function, once for each of several runs.

- Rank 0 calls `make_folder` once for each run. No other rank calls it.
- Every rank returns the path, and not before the folder is ready.
- If `make_folder` raises an exception, whichever it is, your function raises an error on every
  rank, for example a RuntimeError. It does not try again, and no rank is left waiting.
"""

import atexit
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ddp_workbook.judging import (
    CheckFailed,
    Comparison,
    DistributedCheck,
    Observation,
    Pattern,
    edit,
)
from ddp_workbook.judging.in_rank import reported_barrier, store_barrier
from ddp_workbook.judging.values import in_words

MINUTES = 15
HINTS = [
    "Rank 0 always has something to tell: the path, or that there is none. When make_folder fails, "
    "does rank 0 still reach the line where the others wait?",
    "A try around the call lets rank 0 continue. dist.broadcast_object_list sends a list of Python "
    "objects; on the other ranks it needs a list of the same length.",
    "Send two things, the path and what went wrong; one of them is None. Not every exception can "
    "be pickled, and some have no message. What can you always send?",
]


def once_per_run(make_folder: Callable[[], str]) -> str:
    """Path of the folder that rank 0 makes; raises on every rank if rank 0 cannot make it."""
    ### BEGIN SOLUTION
    told: list = [None, None]  # the path, the problem
    if dist.get_rank() == 0:
        try:
            told[0] = make_folder()
        except Exception as error:
            told[1] = repr(error)  # a text can be sent, not every exception can
    dist.broadcast_object_list(told, src=0)  # every rank waits here for rank 0
    path, problem = told
    if problem is not None:
        raise RuntimeError(f"rank 0 could not make the folder: {problem}")
    return path
    ### END SOLUTION


class DiskFull(Exception):
    """Cannot be pickled, for it holds a lock."""

    def __init__(self, disk: str) -> None:
        super().__init__(f"disk {disk} is full")
        self.lock = threading.Lock()


PAUSE_S = 0.02  # seconds that it takes to make the folder, and again to fill it
READY_FILE = "settings.txt"  # a folder that has this is ready
LONG_PATH = "/".join(["x" * 60 + "_größe_試験"] * 4)
RUNS: list[str | Exception] = [
    "first",
    OSError("disk full"),
    LONG_PATH,
    ValueError(),
    "again",
    DiskFull("b"),
]


@dataclass
class Run:
    """On this rank: what make_folder should do in a call, and what it has done."""

    case: str | Exception
    calls: int = 0
    folder: str = ""


CURRENT_RUN: list[Run] = []
TEMP_FOLDERS: list[str] = []  # this rank's temporary folder, removed when the rank ends


def make_folder() -> str:
    """What the reader's function gets, the same in all runs."""
    run = CURRENT_RUN[0]
    run.calls += 1
    time.sleep(PAUSE_S)
    if isinstance(run.case, Exception):
        raise run.case
    if not TEMP_FOLDERS:
        TEMP_FOLDERS.append(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, TEMP_FOLDERS[0], ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix="run_", dir=TEMP_FOLDERS[0]), run.case)
    folder.mkdir(parents=True)
    time.sleep(PAUSE_S)
    Path(folder, READY_FILE).touch()
    run.folder = str(folder)
    return run.folder


def make_args(case: str | Exception, rank: int) -> tuple[Callable[[], str]]:
    """The argument. The ranks play nodes of two."""
    os.environ["LOCAL_RANK"] = str(rank % 2)
    CURRENT_RUN[:] = [Run(case)]
    return (make_folder,)


def call_and_observe(once_per_run: Callable, make_folder: Callable) -> dict[str, Any]:
    """How a call ended: the path, whether its folder is ready, the error."""
    run = CURRENT_RUN[0]
    actual: dict[str, Any] = {"path": "", "ready": False, "error": ""}
    try:
        returned = once_per_run(make_folder)
    except CheckFailed:
        raise
    except Exception as error:
        if not isinstance(run.case, Exception):
            raise
        actual["error"] = f"{type(error).__name__}: {error}"
        store_barrier()  # here, so that a report names the error if the others do not come
    else:
        is_path = isinstance(returned, str | Path)
        actual["path"] = str(returned) if is_path else ""
        actual["words"] = shorten(actual["path"]) if is_path else in_words(returned)
        actual["ready"] = is_path and Path(returned, READY_FILE).exists()
        reported_barrier()
    return actual | {"calls of make_folder": run.calls, "folder": run.folder}


def shorten(path: str) -> str:
    """A path's end: what comes before is the check's own."""
    return repr(path if len(path) < 40 else f"…{path[-40:]}")


def call_text(case: str | Exception) -> str:
    """What happens to rank 0 in this call, as the verdict says it."""
    action = f"raises {case!r} on rank 0" if isinstance(case, Exception) else "makes a folder"
    if case == LONG_PATH:
        action += f", whose path is long and ends with {shorten(case)}"
    return f"once_per_run(make_folder), where make_folder {action}"


def outcome(obs: Observation) -> str:
    """What the rank did, in a word."""
    actual, path = obs.actual, obs.all_ranks[0].actual["folder"]
    if actual["error"]:
        return "raised"
    if actual["path"] != path:
        return "another path"
    return "path" if actual["ready"] else "early"


def describe_outcomes(obs: Observation) -> str:
    """What all ranks did."""
    outcomes = [
        rank_obs.actual["error"] or f"returned {rank_obs.actual['words']}"
        for rank_obs in obs.all_ranks
    ]
    return "\n".join(f"rank {rank}: {words}" for rank, words in enumerate(outcomes))


def fails(obs: Observation) -> bool:
    """Whether make_folder raises in this run."""
    return isinstance(obs.case, Exception)


CHECK = DistributedCheck(
    cases=lambda size: RUNS,
    call_text=call_text,
    make_args=make_args,
    caller=call_and_observe,
    observe=lambda actual, make_folder: actual,
    compare={
        "calls of make_folder": Comparison(
            "How many folders does this make? Which rank makes one, how often, and what do the "
            "others need?",
            lambda case, rank: int(rank == 0),
            actual="calls of make_folder\n{all_values}",
            required="1 on rank 0, none on any other rank",
        ),
        "ends": Comparison(
            "Which rank knows the path, how do the others get all of it, and does every rank "
            "return it?",
            lambda case: "raised" if isinstance(case, Exception) else "path",
            select=outcome,
            actual=describe_outcomes,
            required=lambda obs: (
                "an error on every rank, such as rank 0's own or a RuntimeError"
                if fails(obs)
                else f"{shorten(obs.all_ranks[0].actual['folder'])}, which rank 0 has made, on "
                f"every rank, and not before it is ready"
            ),
        ),
    },
    mistakes={
        "Each node has a local rank 0. Which rank exists once in the world?": edit(
            "dist.get_rank() == 0", "dist.get_rank() % 2 == 0"
        ),
        "What happens to the error that make_folder raised?": Pattern(
            lambda obs: fails(obs) and not obs.all_ranks[0].actual["error"], "ends"
        ),
        "Rank 0 has raised, and another rank continues without a folder. What was it "
        "told?": Pattern(
            lambda obs: (
                fails(obs) and any(not rank_obs.actual["error"] for rank_obs in obs.all_ranks)
            ),
            "ends",
        ),
    },
    errors={
        "hangs": "Do all ranks reach the same operations with the same arguments, also when "
        "make_folder raises, and whatever it raises? Who tells the others that there will be no "
        "folder?",
    },
    on_pass="one folder a run for all ranks, never too early, and an error on every rank if rank 0 "
    "fails, at 1 to 4 ranks",
)
