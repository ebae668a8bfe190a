"""Files that two processes write at the same time."""

import os
from pathlib import Path

import torch.distributed as dist

from ddp_workbook.judging import attempts
from ddp_workbook.judging.reader import progress
from manyranks.files import write_atomically


def attempt(number: int, rank: int) -> str:
    """The text of an attempt; every third is equal on all ranks."""
    return f"x = {number}  # {0 if number % 3 == 0 else rank}\n"


def save_and_solve_at_once(name: str, times: int, folder: str) -> list[str]:
    """Save an attempt and note that it passed, at the same moment as the other rank."""
    os.chdir(folder)
    dist.init_process_group("gloo")
    rank, paths = dist.get_rank(), []
    for number in range(times):
        dist.barrier()
        attempt_files = attempts.save(name, attempt(number, rank))
        dist.barrier()
        of_whom = 0 if number % 3 == 0 else rank
        attempts.note_solved(attempt_files, f"solved: {number} of rank {of_whom}")
        paths.append(str(attempt_files.path))
    return paths


def write_at_once(path: str, times: int) -> str:
    """Write a long text of this rank's own to the file so often; the text."""
    dist.init_process_group("gloo")
    text, pid = f"{dist.get_rank()}" * 100_000, os.getpid
    dist.barrier()
    os.getpid = lambda: 7
    try:
        for _ in range(times):
            write_atomically(Path(path), text)
    finally:
        os.getpid = pid
    return text


def read_progress(name: str, folder: str) -> dict[str, str]:
    """What a process that has saved nothing itself finds."""
    os.chdir(folder)
    return {
        "solved": attempts.latest_passed(name).read_text(),
        "progress": repr(progress("start_here")),
    }
