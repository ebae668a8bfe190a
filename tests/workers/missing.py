"""Workers that lack something: a GPU, Slurm, memory, or an object that can travel."""

import os
import runpy
import sys
import threading

import torch
import torch.distributed as dist

from manyranks.diagnostics import exceptions


def errors(files: list[str]) -> list[dict | None]:
    """What each script fails with, as `exceptions.as_data` describes it; None if it runs."""
    return [error_of(file) for file in files]


def error_of(file: str) -> dict | None:
    sys.argv = [file]
    try:
        runpy.run_path(file, run_name="__main__")
    except BaseException as error:
        return exceptions.as_data(error)
    finally:
        torch.set_default_device("cpu")
        if dist.is_initialized():
            dist.destroy_process_group()
    return None


def gathers_a_lambda():
    gather(lambda: 1)


def gathers_a_generator():
    gather(one for one in ())


def gathers_a_lock():
    gather(threading.Lock())


def gather(thing: object) -> None:
    dist.init_process_group("gloo")
    dist.all_gather_object([None, None], thing if dist.get_rank() == 1 else 1)


def runs_out_of_memory():
    raise MemoryError


def allocates_too_much():
    torch.empty(10**15)


def exits():
    os._exit(3)
