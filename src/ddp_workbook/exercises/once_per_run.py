"""Make the folder of a run on rank 0, and let every rank know where it is, or that there is none.

`make_folder()` makes a new folder, which takes a while, and returns its path. Each call makes
another one, and nobody knows its name before. Your function is called on all ranks, and may be
called again for the next run.

- Rank 0 calls `make_folder`, once. No other rank does.
- Every rank returns the path of this folder, and none before the folder is ready.
- `make_folder` may fail: the disk is full, say. Then every rank raises an error, such as rank 0's
  own or a RuntimeError. None returns, none waits for ever, and rank 0 does not try again.
"""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ddp_workbook.exercises import Attempt, NotYet, attempt_on_ranks, in_words

HINTS = [
    "Rank 0 has something to tell in any case: the path, or that there is none. When it fails, "
    "does it still come to the line where the others wait?",
    "A try around the call keeps rank 0 on its way. dist.broadcast_object_list sends a list of "
    "Python objects; on the other ranks the list must be as long before.",
    "Send two things: the path, and the error; one of them is None. After that every rank, rank 0 "
    "as well, looks whether there was an error.",
]
FOR_ERRORS = {
    "object_list": "The list that is handed over: is there one on every rank, equally long?",
    "process group twice": "The group is there when your function is called.",
}
SIZES = (1, 2, 3, 4)
CALLS = (False, True, False)  # does make_folder fail?
ERROR = "disk full"
STUMBLES = (AttributeError, LookupError, NameError, TypeError)
PAUSE = 0.03  # seconds that it takes to make the folder, and again to fill it
PATIENCE = 2  # seconds, with ranks that do not come back
LAST = "settings.txt"  # a folder that has this is ready


def once_per_run(make_folder: Callable[[], str]) -> str:
    """Path of the folder that rank 0 makes; raises on every rank if rank 0 cannot make it."""
    ### BEGIN SOLUTION
    told: list = [None, None]  # the path, the error
    if dist.get_rank() == 0:
        try:
            told[0] = make_folder()
        except Exception as error:
            told[1] = error
    dist.broadcast_object_list(told, src=0)  # nobody gets past it before rank 0 has come
    if told[1] is not None:
        raise told[1]
    return told[0]
    ### END SOLUTION


def three_runs(once_per_run: Callable, where: str) -> None:
    """In a rank: call it where make_folder works, where it fails, and where it works again."""
    for number, fails in enumerate(CALLS):
        made: list[str] = []

        def make_folder(made: list[str] = made, fails: bool = fails) -> str:
            made.append("")  # a call
            time.sleep(PAUSE)
            if fails:
                raise OSError(ERROR)
            made[-1] = tempfile.mkdtemp(prefix="run_", dir=where)
            time.sleep(PAUSE)
            Path(made[-1], LAST).touch()
            return made[-1]

        mine: dict[str, Any] = {"made": made}
        try:
            mine |= what_it_is(once_per_run(make_folder))
        except NotYet:
            raise
        except Exception as error:
            if not fails:
                raise
            mine["error"] = f"{type(error).__name__}: {error}"
            mine["meant"] = not isinstance(error, STUMBLES) or ERROR in str(error)
        everyone = tell_all(number, mine)
        if fails:
            compare_failure(everyone)
        elif None in everyone:
            return  # somebody hangs: the launch will say where
        else:
            compare_success(everyone)


def what_it_is(returned: Any) -> dict[str, Any]:
    """The path that came back, whether the folder is ready, and the whole in words."""
    if isinstance(returned, Path):
        returned = str(returned)
    words = shown(returned) if isinstance(returned, str) else in_words(returned)
    ready = isinstance(returned, str) and Path(returned, LAST).exists()
    path = returned if isinstance(returned, str) else None
    return {"path": path, "ready": ready, "words": words, "none": returned is None}


def shown(path: str) -> str:
    """Its end: what comes before is the check's own."""
    return f"'.../{Path(path).name}'" if "/" in path else repr(path)


def tell_all(number: int, mine: dict[str, Any]) -> list[dict[str, Any] | None]:
    """What the ranks report of this call, through the store; None for one that does not come."""
    store, ranks = dist.distributed_c10d._get_default_store(), range(dist.get_world_size())
    store.set(f"{number} {dist.get_rank()}", json.dumps(mine))
    end = time.monotonic() + PATIENCE
    keys = [f"{number} {rank}" for rank in ranks]
    while not store.check(keys) and time.monotonic() < end:
        time.sleep(0.002)
    return [json.loads(store.get(key)) if store.check([key]) else None for key in keys]


def on(ranks: list[int]) -> str:
    """on ranks 0 and 2"""
    return f"on rank{'s' * (len(ranks) > 1)} {' and '.join(map(str, ranks))}"


def compare_calls(called: str, everyone: list[dict[str, Any]]) -> None:
    """Raise NotYet unless rank 0, and only rank 0, has called make_folder, and once."""
    times = [len(one["made"]) for one in everyone]
    required = "a call on rank 0, none on any other rank"
    if callers := [rank for rank, count in enumerate(times) if count and rank]:
        came = f"make_folder was called {on([0] * (times[0] > 0) + callers)}"
        look = "How many folders are that? Which rank makes one, and what do the others need?"
        raise NotYet(called, came, required, look)
    if times[0] != 1:
        came = f"make_folder was called {times[0]} times on rank 0"
        raise NotYet(called, came, required, "How often does rank 0 come to the call?")


def compare_success(everyone: list[dict[str, Any]]) -> None:
    """Raise NotYet if a rank has no path, another one, or a path too early."""
    called = "once_per_run(make_folder)"
    compare_calls(called, everyone)
    right = everyone[0]["made"][0]
    required = f"{shown(right)}, which rank 0 has made, on every rank"
    for rank, one in enumerate(everyone):
        came = f"{one['words']} on rank {rank}"
        if one["none"]:
            look = "Does the function return the path?"
            if everyone[0]["path"] == right:
                look = "Rank 0 knows the path. How does the other rank get to know it?"
            raise NotYet(called, came, required, look)
        if one["path"] is None:
            raise NotYet(called, came, required, "A path is a text. What is this?")
        if one["path"] != right:
            look = "Nobody but rank 0 can know this name. Who tells it to the others?"
            if Path(one["path"]).name == Path(right).name:
                look = "The name is right. In which folder would a rank look for it?"
            raise NotYet(called, came, required, look)
        if not one["ready"]:
            look = "What makes sure that rank 0 has finished before a rank goes on?"
            raise NotYet(called, f"{came}, while it was being made", required, look)


def compare_failure(everyone: list[dict[str, Any] | None]) -> None:
    """Raise NotYet if a rank waits, returns, or stumbles, where make_folder has failed."""
    called = f"once_per_run(make_folder), where make_folder raises OSError('{ERROR}') on rank 0"
    required = "an error on every rank, such as rank 0's own or a RuntimeError"
    did = [
        f"had not come back {PATIENCE} s later"
        if one is None
        else one.get("error") or f"returned {one['words']}"
        for one in everyone
    ]
    came = "\n".join(f"rank {rank}: {words}" for rank, words in enumerate(did))
    if None in everyone:
        look = "What do they wait for? Who tells the others that there will be no folder?"
        raise NotYet(called, came, required, look)
    compare_calls(called, everyone)
    raised = ["error" in one for one in everyone]
    if not raised[0]:
        look = "What becomes of the error that make_folder raised?"
        raise NotYet(called, came, required, look)
    if not all(raised):
        look = "Rank 0 has stopped, others go on without a folder. What have they been told?"
        raise NotYet(called, came, required, look)
    if not all(one["meant"] for one in everyone):
        look = "Is this error meant, or does a rank stumble over what it was not told?"
        raise NotYet(called, came, required, look)


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Three runs at each world size, of which the second fails."""
    for ranks in sizes:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as where:
            attempt_on_ranks(attempt, three_runs, each=[where] * ranks)
    return (
        "one folder for all ranks, never too early, and an error on every rank where rank 0 fails, "
        "at 1 to 4 ranks"
    )
