"""Ways to start the same small worker, each a function that returns its seconds."""

import contextlib
import io
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import torch.multiprocessing

from benchmarks.bare import BareForkServer
from benchmarks.workers.all_reduce import all_reduce, all_reduce_under_spawn
from ddp_workbook import launch

ROOT = Path(__file__).parents[1]
WORKER = ROOT / "benchmarks" / "workers" / "all_reduce.py"
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}


class WrongResult(Exception):
    """The ranks returned wrong sums, so the timing means nothing."""


def by_launch(ranks: int) -> float:
    """`launch`, results back."""
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):  # the torchrun line
        results = launch(all_reduce, ranks=ranks)
    seconds = time.perf_counter() - start
    return _check_results(results, ranks, seconds)


def by_bare_fork_server(server: BareForkServer, ranks: int) -> float:
    """A bare fork server, results back."""
    seconds, results = server.run(all_reduce, ranks=ranks)
    return _check_results(results, ranks, seconds)


def by_spawn(ranks: int) -> float:
    """`torch.multiprocessing.spawn`, results back through a queue."""
    results = multiprocessing.get_context("spawn").SimpleQueue()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with patch.dict(os.environ, LOOPBACK):
        start = time.perf_counter()
        torch.multiprocessing.spawn(all_reduce_under_spawn, (ranks, port, results), nprocs=ranks)
        by_rank = dict(results.get() for _ in range(ranks))
        seconds = time.perf_counter() - start
    results.close()
    return _check_results([by_rank[rank] for rank in range(ranks)], ranks, seconds)


def by_torchrun(ranks: int) -> float:
    """`torchrun --standalone` on the worker's file; the ranks print their results."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), str(WORKER)]
    start = time.perf_counter()
    result = subprocess.run(
        command,
        env=os.environ | LOOPBACK | {"OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - start
    return _check_results([float(word) for word in result.stdout.split()], ranks, seconds)


def first_launch(ranks: int) -> float:
    """`launch` as the first act of a new Python: the fork server has yet to import torch."""
    code = f"from benchmarks.starters import by_launch; print(by_launch({ranks}))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return float(result.stdout)


def several(start: Callable[[], float], times: int) -> Callable[[], list[float]]:
    """A candidate that is called several times a turn."""
    return lambda: [start() for _ in range(times)]


def _check_results(results: list[float], ranks: int, seconds: float) -> float:
    if results != [ranks * (ranks + 1) / 2] * ranks:
        raise WrongResult(f"{ranks} ranks returned {results}")
    return seconds
