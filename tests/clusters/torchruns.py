"""One torchrun on each pretend host, all at once."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.clusters.hosts import Hosts, Process

TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
WORKER = str(Path(__file__).with_name("worker.py"))
PORT = 29400
TIMEOUT_S = 300.0  # seconds for a run that takes 5 to 15 on an idle machine
# As every job script sets them; a rank's BLAS threads would fight for two cores.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


@dataclass(frozen=True)
class HostResult:
    """How a command on one host ended. code is None if it was killed at the time limit."""

    host: str
    command: Sequence[str]
    output: str  # standard output and standard error together
    code: int | None
    seconds: float  # from the start of all commands


def line(
    *options: str,
    nodes: int = 2,
    ranks: int = 1,
    endpoint: str = f"node1:{PORT}",
    program: Sequence[str] = (WORKER,),
    torchrun: str = TORCHRUN,
) -> list[str]:
    """The line to type on every host: `ranks` on each of `nodes` hosts, meeting at `endpoint`."""
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", "--rdzv-id=lab"]
    return [
        torchrun,
        f"--nnodes={nodes}",
        f"--nproc-per-node={ranks}",
        *meeting,
        *options,
        *program,
    ]


def run_on_hosts(
    hosts: Hosts,
    lines: Mapping[int, Sequence[str]],
    timeout: float,
    environment: Mapping[str, str] | None = None,
    meanwhile: Callable[[Callable[[int], str]], object] | None = None,
) -> list[HostResult]:
    """Start a command on each of these hosts at once, wait for all; how they ended, in that order.

    timeout: seconds; what runs longer is killed with its children.
    meanwhile: called when all have started, with a function that gives what host i's command has
        printed so far. If it returns True, enough has been seen: what still runs is killed.
    """
    environment = {**os.environ, **ENVIRONMENT, **(environment or {})}
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:  # files: a pipe that nobody reads fills up

        def output_of(i: int) -> str:
            return Path(folder, str(i)).read_text(errors="replace")

        Path(folder, "tmp").mkdir()
        environment["TMPDIR"] = str(Path(folder, "tmp"))  # torchrun leaves its log folders there
        running = {}
        for i, command in lines.items():
            with open(Path(folder, str(i)), "wb") as file:
                options = {"stdout": file, "stderr": subprocess.STDOUT, "env": environment}
                running[i] = hosts.popen(i, command, **options)
        try:
            is_enough = meanwhile is not None and meanwhile(output_of) is True
            seconds = {} if is_enough else wait_for(running, begin, timeout)
        finally:
            for process in running.values():
                process.kill_tree()
        return [
            HostResult(
                host=hosts.names[i],
                command=lines[i],
                output=output_of(i),
                code=process.returncode if i in seconds else None,
                seconds=seconds.get(i, timeout),
            )
            for i, process in running.items()
        ]


def wait_for(running: Mapping[int, Process], begin: float, timeout: float) -> dict[int, float]:
    """The seconds that each took, without those that still run at the end of the time."""
    seconds: dict[int, float] = {}
    while len(seconds) < len(running) and time.monotonic() - begin < timeout:
        for i, process in running.items():
            if i not in seconds and process.poll() is not None:
                seconds[i] = time.monotonic() - begin
        time.sleep(0.02)
    return seconds
