"""What each backend can do, and what a sum in two stages costs."""

import os
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pandas as pd
import torch
import torch.distributed as dist

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.process_groups import make_mesh
from ddp_workbook.experiments.collectives.every_call import COLLECTIVES, numbers
from manyranks.errors import WorkbookError
from manyranks.launcher.launch import launch
from manyranks.recording.timing import compare, summary, time_step


def time_sums(numbers: int, rounds: int) -> pd.DataFrame:
    """Timings of a sum of `numbers` float32 over all ranks: at once, and in two stages."""
    device = setup()
    mesh, x = make_mesh(device), torch.zeros(numbers, device=device)
    ways = {
        "all ranks at once": [dist.group.WORLD],
        "rows, then columns": [mesh.get_group("gpu"), mesh.get_group("node")],
    }

    def time_groups(groups: list) -> Callable[[], list[float]]:
        return lambda: time_step(
            lambda: [dist.all_reduce(x, group=group) for group in groups], repeats=5
        )

    times = compare({way: time_groups(groups) for way, groups in ways.items()}, rounds)
    cleanup()
    return times


def compare_stages(ranks: int = 4, rounds: int = 5) -> pd.DataFrame:
    """Median and quartiles of both ways, in milliseconds, for a small tensor and for a large one.

    `ratio` is a median divided by that of the sum over all ranks at once.
    """
    tables = []
    for size, count in {"19 kB": 4_810, "4 MiB": 2**20}.items():
        times = launch(time_sums, count, rounds, ranks=ranks)[0]
        table = summary(times, baseline="all ranks at once")
        tables.append(table.assign(size=size))
    comparison = pd.concat(tables, ignore_index=True)
    columns = {"q1": "quartile 1 (ms)", "median": "median (ms)", "q3": "quartile 3 (ms)"}
    for name in columns:
        comparison[name] = (1e3 * comparison[name]).map("{:.2f}".format)
    comparison["ratio"] = comparison["ratio"].map("{:.2f}".format)
    comparison = comparison.rename(columns=columns | {"candidate": "sum"})
    return comparison[["size", "sum", *columns.values(), "ratio"]]


# Backends


def operations(device: torch.device) -> dict[str, Callable[[], object]]:
    """A call of each operation, on tensors of this device."""
    calls: dict[str, Callable[[], object]] = {
        name: partial(call, numbers(device)) for name, call in COLLECTIVES.items()
    }
    x, rank = numbers(device), dist.get_rank()
    if dist.get_world_size() > 1:
        calls["send, recv"] = lambda: (
            dist.send(x, 1) if rank == 0 else rank == 1 and dist.recv(x, 0)
        )
    return calls


def try_operations(backend: str, kind: str) -> dict[str, str]:
    """For each operation "yes", or the first line of its error; tensors are on `kind`."""
    local = int(os.environ["LOCAL_RANK"]) if kind == "cuda" else None
    dist.init_process_group(backend, timeout=timedelta(seconds=20))
    outcomes = {}
    for name, call in operations(torch.device(kind, local)).items():
        try:
            call()
            outcomes[name] = "yes"
        except (RuntimeError, ValueError, NotImplementedError) as error:
            outcomes[name] = str(error).splitlines()[0]
    return outcomes


# The table of PyTorch's documentation, torch.distributed, "Backends", read in November 2026. There
# mpi's GPU column has question marks: it depends on the MPI that PyTorch was built against.
ALL_SUPPORTED = dict.fromkeys(["send, recv", *COLLECTIVES], "yes")
DOCUMENTED_SUPPORT = {
    ("gloo", "cpu"): ALL_SUPPORTED,
    ("gloo", "cuda"): ALL_SUPPORTED | {"send, recv": "no", "barrier": "no"},
    ("nccl", "cuda"): ALL_SUPPORTED,
    ("mpi", "cpu"): ALL_SUPPORTED | {"reduce_scatter": "no"},
    ("xccl", "xpu"): ALL_SUPPORTED,
}


def backend_support_table() -> pd.DataFrame:
    """A row for each operation; a column for each backend, tried here or as documented."""
    columns = {}
    for (backend, kind), support in DOCUMENTED_SUPPORT.items():
        if (backend, kind) in local_backends():
            outcomes = launch(try_operations, backend, kind, ranks=ranks_for(kind), timeout=60)[0]
            outcomes = {name: words if words == "yes" else "no" for name, words in outcomes.items()}
            columns[f"{backend}, {kind}: tried here"] = outcomes
        else:
            columns[f"{backend}, {kind}: documented"] = support
    table = pd.DataFrame(columns, index=list(ALL_SUPPORTED)).fillna("")
    return table.rename_axis("operation").reset_index()


def local_backends() -> list[tuple[str, str]]:
    """The pairs of backend and device that are there on this machine."""
    pairs = [("gloo", "cpu")]
    if torch.cuda.is_available():
        pairs += [("gloo", "cuda"), *([("nccl", "cuda")] if dist.is_nccl_available() else [])]
    return pairs


def ranks_for(kind: str) -> int:
    """Two; on GPUs as many as there are, for two ranks of nccl cannot share one."""
    return 2 if kind == "cpu" else max(1, min(2, torch.cuda.device_count()))


def refusals() -> pd.DataFrame:
    """What happens to nccl and mpi here, in PyTorch's own words."""

    def outcome(backend: str) -> str:
        try:
            text = launch(first_refusal, backend, ranks=1, timeout=60, as_if_gpus=False)[0]
        except WorkbookError as error:  # the process ended, or hung
            text = str(error).splitlines()[0]
        return text

    return pd.DataFrame(
        {"backend": backend, "here": outcome(backend)} for backend in ("nccl", "mpi")
    )


def first_refusal(backend: str) -> str:
    """What this backend says, when it is asked to start and to add up a tensor on the CPU."""
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=20))
        dist.all_reduce(torch.ones(1))
    except (RuntimeError, ValueError) as error:
        return str(error).splitlines()[0]
    return "works, also for a tensor on the CPU"
