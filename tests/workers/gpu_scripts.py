"""Scripts that are written for GPUs, one after another in a rank."""

import runpy
import sys

import torch
import torch.distributed as dist

from manyranks.cpu_for_gpus.requests import REQUESTS


def outcomes(files: list[str]) -> list[tuple[str, dict[str, str]]]:
    """For each script the error that it ends with, "" if it runs, and what it asked for, where."""
    return [outcome_of(file) for file in files]


def outcome_of(file: str) -> tuple[str, dict[str, str]]:
    sys.argv = [file]
    REQUESTS.places.clear()
    error = ""
    try:
        runpy.run_path(file, run_name="__main__")
    except BaseException as problem:
        error = f"{type(problem).__name__}: {problem}"
    finally:
        torch.set_default_device("cpu")
        torch.set_default_dtype(torch.float32)
        if dist.is_initialized():
            dist.destroy_process_group()
    return error, dict(REQUESTS.places)


def sees_a_gpu() -> list[object]:
    """Which functions the CPU would have replaced, in a rank that believes to see a GPU."""
    from manyranks import cpu_for_gpus

    before = (torch.device, torch.zeros, torch.Tensor.to, dist.init_process_group)
    available, torch.cuda.is_available = torch.cuda.is_available, lambda: True
    try:
        installed = cpu_for_gpus.install(2, print)
    finally:
        torch.cuda.is_available = available
    after = (torch.device, torch.zeros, torch.Tensor.to, dist.init_process_group)
    return [installed, [old is new for old, new in zip(before, after, strict=True)]]
