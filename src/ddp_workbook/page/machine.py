"""What this machine has for training, and what that means; never a host or user name."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import psutil
import torch
import torch.distributed as dist

from manyranks.launcher.limits import read_text, usable_cores, usable_memory

if TYPE_CHECKING:
    from ddp_workbook.page.display import TextTable

GIB = 2**30


def machine() -> dict[str, Any]:
    """What this process may use: cores, memory in GiB, GPUs, PyTorch and its backends, system.

    Cores and memory are those that affinity and control groups (containers, Slurm) leave to this
    process, which may be fewer than the machine has. Names of host and user are left out.
    """
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "cpu": _cpu_name(),
        "cores": usable_cores(),
        "machine_cores": psutil.cpu_count() or 1,
        "physical_cores": psutil.cpu_count(logical=False),
        "memory_gib": round(usable_memory() / GIB, 1),
        "gpus": gpus,
        "mps": torch.backends.mps.is_available(),
        "torch": torch.__version__,
        "backends": _backends(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def machine_name(*, gpus: bool = True) -> str:
    """One line to put under a measurement: GPUs, cores and their kind, PyTorch's version.

    `gpus=False` leaves out the GPUs, for measurements on the CPU of a machine that has some.
    """
    here = machine()
    cores = f"{here['cores']} core{'s' if here['cores'] != 1 else ''} of {here['cpu']}"
    return ", ".join(
        [*(_with_counts(here["gpus"]) if gpus else []), cores, f"torch {here['torch']}"]
    )


def machine_table() -> TextTable:
    """The machine as a table: what, here, and what this means for you."""
    from ddp_workbook.page.display import text_table  # late: ranks ask for the machine's name

    here = machine()
    fewer = here["cores"] < here["machine_cores"]
    cores = f"{here['cores']} of {here['machine_cores']}" if fewer else f"{here['cores']}"
    rows = [
        ("cores", cores, _cores_meaning(here["cores"])),
        ("memory", f"{here['memory_gib']} GiB", _memory_meaning(here["memory_gib"])),
        ("GPUs", _gpus_here(here), _gpus_meaning(here)),
        ("backends", ", ".join(here["backends"]) or "none", _backends_meaning(here)),
        (
            "software",
            f"torch {here['torch']}, Python {here['python']}, {here['system']}",
            "Give these two versions whenever you ask about a measurement.",
        ),
    ]
    return text_table(pd.DataFrame(rows, columns=["what", "here", "what this means for you"]))


def _cpu_name() -> str:
    lines = read_text(Path("/proc/cpuinfo")).splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    if not names and sys.platform == "darwin":
        result = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        names = [result.stdout.strip()]
    # On Arm, Linux gives no model name: then only the architecture is known.
    return next(filter(None, names), platform.processor() or platform.machine())


def _backends() -> list[str]:
    if not dist.is_available():
        return []
    have = {
        "gloo": dist.is_gloo_available(),
        "nccl": dist.is_nccl_available(),
        "mpi": dist.is_mpi_available(),
    }
    return [name for name, available in have.items() if available]


def _cores_meaning(cores: int) -> str:
    if cores == 1:
        return (
            "Every chapter runs, but ranks take turns on the only core: "
            "no timing here will show a speed-up."
        )
    return (
        f"Up to {cores} ranks compute at the same time. More ranks take turns, and their timings "
        "mean nothing."
    )


def _memory_meaning(gib: float) -> str:
    if gib < 4:  # JupyterLab, a kernel and the memory that ranks share take about 1 GiB
        return "Little: close other programs, and use no more ranks than the page does."
    return "Enough: a rank takes about 0.1 GiB."


def _gpus_here(here: dict) -> str:
    names = here["gpus"] or (["Apple GPU (MPS)"] if here["mps"] else [])
    return ", ".join(_with_counts(names)) or "none"


def _with_counts(names: list[str]) -> list[str]:
    return [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]


def _gpus_meaning(here: dict) -> str:
    count = len(here["gpus"])
    if count == 0:
        return "Everything runs on the CPU over gloo; the pages say where a GPU would differ."
    if count == 1:
        return "Two ranks cannot share one GPU under NCCL, so ranks run on the CPU over gloo."
    return f"Up to {count} ranks run on one GPU each, over NCCL."


def _backends_meaning(here: dict) -> str:
    if not here["backends"]:
        return "This PyTorch was built without torch.distributed: install another build."
    if "nccl" not in here["backends"]:
        return "gloo carries everything between CPU processes; nccl comes with CUDA builds."
    return "gloo carries CPU tensors, nccl GPU tensors; the workbook picks one for all ranks."
