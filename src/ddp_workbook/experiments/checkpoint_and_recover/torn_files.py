"""Saves that are killed at a random moment: what the file then holds."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import torch

from manyranks import figures
from manyranks.launcher.launch import launch

KILLS, NUMBERS = 100, 250_000  # of each way; in a save: 1 MB
OLD, NEW, TORN = "old save", "new save", "torn"


def save_in_place(state: dict, path: Path) -> None:
    """What most scripts do."""
    torch.save(state, path)


def save_then_rename(state: dict, path: Path) -> None:
    """Under another name, until the disk has it."""
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


WAYS = {
    "torch.save to the final path": save_in_place,
    "another name, fsync, rename": save_then_rename,
}


def killed_saves() -> pd.DataFrame:
    """For each way a row: how many of KILLS killed saves left which file."""
    return pd.DataFrame(launch(kill_saves, KILLS, ranks=1)[0]).T


def kill_saves(kills: int) -> dict[str, dict[str, int]]:
    """In one process: its children save, and are killed at a random moment."""
    chance, counts_by_way = random.Random(0), {}
    old, new = ({"step": torch.full((NUMBERS,), value)} for value in (0.0, 1.0))
    with tempfile.TemporaryDirectory() as folder:
        path, before = Path(folder) / "state.pt", Path(folder) / "before.pt"
        torch.save(old, before)
        for name, save in WAYS.items():
            in_child = partial(save_in_child, partial(save, new, path))
            duration = statistics.median(in_child(kill_after=None) for _ in range(5))
            counts = dict.fromkeys((OLD, NEW, TORN), 0)
            for _ in range(kills):
                shutil.copy(before, path)
                in_child(kill_after=chance.uniform(0, duration))
                counts[classify_file(path)] += 1
            counts_by_way[name] = counts
    return counts_by_way


def save_in_child(save: Callable[[], None], kill_after: float | None) -> float:
    """Save in a child process, and kill it so many seconds after the save began; the seconds."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.write(write_end, b"b")  # begins
        save()
        os.write(write_end, b"e")  # ends
        os._exit(0)
    os.close(write_end)
    with open(read_end, "rb", buffering=0) as pipe:
        pipe.read(1)
        start = time.perf_counter()
        if kill_after is None:
            pipe.read(1)
        while kill_after and time.perf_counter() - start < kill_after:
            pass
    duration = time.perf_counter() - start
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return duration


def classify_file(path: Path) -> str:
    """Which save the file is."""
    try:
        steps = torch.load(path, weights_only=True)["step"].unique().tolist()
    except (RuntimeError, EOFError, pickle.UnpicklingError):
        return TORN
    return {(0.0,): OLD, (1.0,): NEW}.get(tuple(steps), TORN)


@figures.house_style
def killed_saves_plot(counts: pd.DataFrame) -> figures.Picture:
    """A bar for each way."""
    return figures.bars(counts, "saves that were killed", "What the file was after a kill")
