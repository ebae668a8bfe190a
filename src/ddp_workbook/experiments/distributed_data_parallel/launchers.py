"""Four ways to start the same worker, timed; and what launchers tell a program."""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch.multiprocessing as mp

from ddp_workbook.experiments import print_environment
from ddp_workbook.experiments.distributed_data_parallel import four_ways
from manyranks import figures
from manyranks.errors import WorkbookError
from manyranks.figures.palette import INK
from manyranks.launcher.agents import LAUNCH_ENV_PREFIXES, error_of, run_agents
from manyranks.launcher.calls import call_of
from manyranks.launcher.launch import run_ranks
from manyranks.launcher.rendezvous import free_port

RANKS, TIMEOUT_S = (
    2,
    180,
)  # seconds; a busy machine needs a minute for what a quiet one does in five


class LaunchTiming(NamedTuple):
    """A run that was started in one `way`; times in seconds since it was asked for.

    `seconds` is when the call returned, `training_times` has for each rank when its worker began
    and ended. `threads` is how many a rank had for its computing.
    """

    way: str
    seconds: float
    training_times: list[tuple[float, float]]
    threads: int
    accuracy: float


def by_process(folder: str) -> None:
    """mp.Process: start each rank, wait for each, and look at how each has ended."""
    port, spawn = free_port(), mp.get_context("spawn")
    ranks = [
        spawn.Process(target=four_ways.as_rank, args=(rank, RANKS, port, folder))
        for rank in range(RANKS)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    if any(process.exitcode for process in ranks):
        raise RuntimeError("a rank has failed")


def by_spawn(folder: str) -> None:
    """mp.spawn: the same in one call; it puts the rank in front of `args`."""
    mp.spawn(four_ways.as_rank, args=(RANKS, free_port(), folder), nprocs=RANKS, join=True)


def by_torchrun(folder: str) -> None:
    """torchrun, as from a terminal."""
    run_by_torchrun(four_ways.__file__, folder)


def by_launch(folder: str) -> None:
    """What launch(four_ways.worker, folder, ranks=RANKS) does, without printing its line."""
    run_ranks(call_of(four_ways.worker, (folder,), {}, RANKS), RANKS, TIMEOUT_S, quiet=True)


WAYS = {
    "mp.Process": by_process,
    "mp.spawn": by_spawn,
    "torchrun": by_torchrun,
    "launch": by_launch,
}


def start_in_four_ways() -> list[LaunchTiming]:
    """Run the worker in each of the WAYS, one after the other."""
    return [_time_launch(name, way) for name, way in WAYS.items()]


def _time_launch(name: str, way: Callable[[str], None]) -> LaunchTiming:
    with tempfile.TemporaryDirectory(prefix="ddp-workbook-") as folder:
        start = time.time()
        way(folder)
        seconds = time.time() - start
        reports = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(RANKS)]
    return LaunchTiming(
        name,
        seconds,
        [(report["began"] - start, report["ended"] - start) for report in reports],
        threads=reports[0]["threads"],
        accuracy=reports[0]["accuracy"],
    )


@figures.house_style
def lanes(starts: Sequence[LaunchTiming]) -> figures.Picture:
    """A lane for each rank of each way: pale until its worker begins, full while it trains.

    A line and its seconds mark when all was over.
    """
    rows = [
        (rank, f"{start.way}, rank {rank}", what, *times)
        for start in starts
        for rank, (begin, end) in enumerate(start.training_times)
        for what, *times in (("starts", 0.0, begin), ("trains", begin, end))
    ]
    events = pd.DataFrame(rows, columns=["rank", "lane", "what", "start", "end"])
    unit, about = "seconds since it was started", "The same training, started in four ways"
    picture = figures.lanes(events, unit, about, by="rank", pale=["starts"])
    over = {"color": INK, "linewidth": 2, "label": "all is over at"}
    for place, start in enumerate(starts):
        top, height = place * len(start.training_times) - 0.5, len(start.training_times)
        picture.axes.vlines(start.seconds, top + 0.1, top + height - 0.1, **over)
        picture.axes.text(start.seconds, top + height / 2, f"  {start.seconds:.1f} s", va="center")
        picture.alt += f" All is over after {start.seconds:.1f} s with {start.way}."
    picture.axes.set_xlim(0, 1.12 * max(start.seconds for start in starts))
    picture.update_legend()
    return picture


def start_table(starts: Sequence[LaunchTiming]) -> pd.DataFrame:
    """A row for each way: seconds in all and of training, the result, threads of a rank."""
    return pd.DataFrame(
        {
            "started by": start.way,
            "seconds in all": f"{start.seconds:.1f}",
            "of these, training": f"{max(b - a for a, b in start.training_times):.1f}",
            "accuracy": f"{start.accuracy:.1%}",
            "threads a rank": start.threads,
        }
        for start in starts
    )


def seconds_to_import_torch() -> float:
    """What a fresh Python needs to import torch, before the first line of a worker can run."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True, timeout=TIMEOUT_S)
    return time.perf_counter() - start


# What launchers tell a program

RUN, OLD = "torch.distributed.run", "torch.distributed.launch"
LINES = {  # what one types -> a module and its arguments; print_environment.py's come last
    "torchrun program.py --epochs 5": (RUN, [print_environment.__file__]),
    "torchrun -m package.program --epochs 5": (RUN, ["-m", print_environment.__name__]),
    "python -m torch.distributed.launch program.py --epochs 5": (OLD, [print_environment.__file__]),
}
VISIBLE = "CUDA_VISIBLE_DEVICES"


def program_environments() -> pd.DataFrame:
    """A row for each way to type it: the arguments and the variables that the program finds."""
    outputs = [  # one after another: before torch 2.13 all of them take port 29500
        rank_outputs(module, [*words, "--epochs", "5"], {}) for module, words in LINES.values()
    ]
    return pd.DataFrame(
        {
            "you type": command,
            "sys.argv[1:]": " ".join(output["argv"]),
            "LOCAL_RANK": output["LOCAL_RANK"],
            "MASTER_PORT": output["MASTER_PORT"],
            "imports start in": _where(output["path"]),
        }
        for command, (output,) in zip(LINES, outputs, strict=True)
    )


def which_gpus(visible: str, ranks: int = 2) -> pd.DataFrame:
    """Which GPU of the machine each rank's cuda:LOCAL_RANK is, if `visible` is what they see."""
    line = ["--nproc-per-node", str(ranks), print_environment.__file__]
    outputs = rank_outputs(RUN, line, {VISIBLE: visible})
    return pd.DataFrame(
        {
            "rank": int(output["RANK"]),
            VISIBLE: output[VISIBLE],
            "the program says": f"cuda:{output['LOCAL_RANK']}",
            "GPU of the machine": output[VISIBLE].split(",")[int(output["LOCAL_RANK"])],
        }
        for output in sorted(outputs, key=lambda output: output["RANK"])
    )


def rank_outputs(module: str, words: Sequence[str], variables: Mapping[str, str]) -> list[dict]:
    """What each rank printed, started by `python -m module` from a terminal of its own."""
    call = call_of(_module_output, (module, list(words), dict(variables)), {}, ranks=1)
    (text,) = run_ranks(call, 1, TIMEOUT_S, quiet=True)
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def _module_output(module: str, words: list[str], variables: dict[str, str]) -> str:
    """Worker: what `python -m module` prints. A fork need not import torch again, which takes 2 s.

    Raises what the module raises: torchrun a ChildFailedError if its program fails.
    """
    for name in [name for name in os.environ if name.startswith(LAUNCH_ENV_PREFIXES)]:
        del os.environ[name]
    os.environ |= variables
    sys.argv = [module, *words]
    streams = [1, 2]  # stdout, and stderr with the warnings of old launchers
    originals = [os.dup(stream) for stream in streams]
    with tempfile.TemporaryFile("w+") as file:
        for stream in streams:
            os.dup2(file.fileno(), stream)  # for processes that it starts, too
        try:
            # Not runpy: torchrun inspects the stack for its events; frames of no module are slow.
            importlib.import_module(module).main()
        finally:
            for stream, original in zip(streams, originals, strict=True):
                os.dup2(original, stream)
        file.seek(0)
        return file.read()


def _where(path: str) -> str:
    if Path(path or ".").resolve() == Path(print_environment.__file__).parent:
        return "the program's folder"
    return "your folder" if Path(path or ".").resolve() == Path.cwd() else path


def run_program(path: str, *words: str) -> str:
    """Run `python path words`: its output, or the first error, also of a process it started."""
    command = [sys.executable, path, *words]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    error = re.search(r"(?m)^\w*Error: .*\n(?:[ \t]+.+\n)*", result.stderr)
    return " ".join(error[0].split()) if error else result.stdout.strip()


def run_by_torchrun(path: str, *words: str, ranks: int = RANKS) -> str:
    """Run `torchrun --standalone --nproc-per-node RANKS path words`: its output.

    Raises WorkbookError if torchrun fails.
    """
    line = ["--standalone", "--nproc-per-node", str(ranks), path, *words]
    run = run_agents({"this host": line}, timeout=TIMEOUT_S, quiet=True)["this host"]
    if run.returncode != 0:
        raise WorkbookError(f"torchrun failed: {error_of(run.lines) or 'stopped'}")
    return "\n".join(line.text for line in run.lines)


# Which GPUs are free

QUERY = "index,name,memory.used,memory.total,utilization.gpu"


def gpus_in_use(smi: str = "nvidia-smi") -> pd.DataFrame | str:
    """A row for each GPU, as `nvidia-smi --query-gpu` prints it; a sentence where there is none."""
    command = [smi, f"--query-gpu={QUERY}", "--format=csv"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except FileNotFoundError:
        return f"There is no {smi} here, so there is no NVIDIA GPU that it could list."
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return f"{smi} has failed: {error}"
    return pd.read_csv(io.StringIO(result.stdout), skipinitialspace=True)
