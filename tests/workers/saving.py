"""Attempts that two processes save at the same time."""

import os

from ddp_workbook.exercises.judging import attempts


def save_many(name: str, times: int, folder: str) -> list[str]:
    """Save an attempt of this rank's own so many times; the files in which they are."""
    os.chdir(folder)
    rank = os.environ["RANK"]
    return [str(attempts.save(name, f"x = {n}  # {rank}\n").path) for n in range(times)]
