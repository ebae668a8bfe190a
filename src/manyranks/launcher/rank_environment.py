"""The environment of a rank: torchrun's variables, loopback, threads, one device type for all."""

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from manyranks.launcher.calls import Call
from manyranks.launcher.limits import usable_cores
from manyranks.launcher.output import prints_in_kernel
from manyranks.launcher.rendezvous import LOOPBACK
from manyranks.launcher.scheduler_variables import SchedulerVariables

LOOPBACK_INTERFACE = {"linux": "lo", "darwin": "lo0"}.get(sys.platform)
MAIN_GUARD = re.compile(r"^if __name__ == .__main__.:", flags=re.M)
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
FLIGHT_RECORDER_ENTRIES = "500"  # reading one takes 16 microseconds at the end


class RankEnvironment:
    """What the ranks of a launch share; `of(rank)` gives the environment of one rank."""

    def __init__(
        self,
        ranks: int,
        port: int,
        threads: int | None,
        extra: dict[str, str],
        scheduler: SchedulerVariables | None = None,
    ):
        self.ranks, self.port, self.extra = ranks, port, extra
        self.scheduler = scheduler or SchedulerVariables(None)
        self.threads = threads or max(1, usable_cores() // ranks)

    def of(self, rank: int) -> dict[str, str]:
        """The kernel's current environment, with torchrun's variables for `rank`."""
        variables = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "ROLE_RANK": str(rank),
            "GROUP_RANK": "0",
            "WORLD_SIZE": str(self.ranks),
            "LOCAL_WORLD_SIZE": str(self.ranks),
            "ROLE_WORLD_SIZE": str(self.ranks),
            "GROUP_WORLD_SIZE": "1",
            "ROLE_NAME": "default",
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": str(self.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # the kernel hosts the store, not rank 0
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": "none",
            "OMP_NUM_THREADS": str(self.threads),
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get(
                "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"
            ),
            "TORCH_FR_BUFFER_SIZE": FLIGHT_RECORDER_ENTRIES,  # for the report of a hang
            "TORCH_FR_DUMP_TEMP_FILE": os.devnull,
        }
        if LOOPBACK_INTERFACE:
            variables |= {
                "GLOO_SOCKET_IFNAME": LOOPBACK_INTERFACE,
                "NCCL_SOCKET_IFNAME": LOOPBACK_INTERFACE,
                "TP_SOCKET_IFNAME": LOOPBACK_INTERFACE,
            }
        if not has_gpu_per_rank(self.ranks):  # hide them all, so that all ranks agree on gloo
            variables |= NO_GPU
        if self.scheduler.wants_gpu_numbers and not torch.cuda.device_count():
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(self.ranks)))
        scheduler = self.scheduler.of(rank, self.ranks, self.threads)
        return os.environ | variables | scheduler | self.extra


def has_gpu_per_rank(ranks: int) -> bool:
    """True if this machine shows a GPU for each of so many ranks."""
    return ranks <= torch.cuda.device_count()


def torchrun_line(call: Call, ranks: int) -> str:
    """The command that runs the worker's file under torchrun; "" if it is no script.

    Printed in a notebook, it is for JupyterLab's terminal.
    """
    file = call.file
    folder, torchrun = terminal() if prints_in_kernel() else (Path.cwd(), "torchrun")
    with contextlib.suppress(OSError, ValueError):  # ValueError: another drive, on Windows
        if file and (call.script or (not call.has_arguments and runs_as_script(call.worker, file))):
            words = call.args if call.script else ()
            module = call.script.module if call.script else ""
            program = ["-m", module] if module else [os.path.relpath(file, folder)]
            command = shlex.join([*program, *words])
            return f"{torchrun} --standalone --nproc-per-node {ranks} {command}"
    return ""


def terminal() -> tuple[Path, str]:
    """The folder in which JupyterLab's terminals begin, and how torchrun is called there.

    They begin where the server does, in a project that is the folder of .venv; and a login shell
    may forget which environment was active.
    """
    environment, here = Path(sys.prefix), Path.cwd()
    if environment.parent in here.parents:
        return environment.parent, f"{environment.name}/bin/torchrun"
    return here, "torchrun"


def runs_as_script(function: Callable, file: str) -> bool:
    """True if the file, run as a script, calls this function: `f()`, or `run(f)` of a chapter."""
    text = Path(file).read_text(encoding="utf-8", errors="ignore")
    blocks = MAIN_GUARD.split(text, maxsplit=1)[1:]
    name = re.escape(getattr(function, "__name__", ""))
    return bool(name) and any(
        re.search(rf"\b(?:{name}\(\)|run\({name}\))", block) for block in blocks
    )
