"""The last line of every chapter's program, `run(train)`: command line, report, row of results.

    torchrun --standalone --nproc-per-node 4 src/ddp_workbook/chapters/samplers.py \\
        --epochs 5 --batch-size 128 --results results.csv

Each parameter of `train` is an option: `batch_size` is --batch-size. Rank 0 prints the report. With
--results it also appends a row to a table: the loss, the throughput, and where the ranks ran.
`train` does not know about this: PyTorch calls a hook after every step of an optimizer.
"""

import argparse
import contextlib
import inspect
import os
import socket
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from ddp_workbook.chapters.digits import Result
from ddp_workbook.chapters.results import ResultsError, append_row, check_results, line_of

MAY_BE_ZERO = {"epochs", "depth"}  # other whole numbers are at least 1
WARM_UP = 3  # uncounted steps: memory is allocated, connections made, DDP plans its buckets
WRONG_INPUT = 2  # the exit code that argparse uses


def run(train: Callable[..., Result]) -> None:
    """Train as the command line asks, report on rank 0, and end the process.

    It returns only where torch's `record` takes the end of a run without an error for a return.

    Exit codes: 0 when done; 2 for a wrong option or file, which rank 0 reports in one line before
    any rank trains; 1 if the row could not be written; the numeric code of a SystemExit in `train`.
    Any other exception of `train` is raised, and appears in torchrun's report.
    """
    # Imported here, because each rank of a launch imports a chapter, and need not wait for this.
    from torch.distributed.elastic.multiprocessing.errors import record

    record(train_and_report)(train)  # else the report says "exit code 1", not the error


def train_and_report(train: Callable[..., Result]) -> NoReturn:
    """`run` without its error handling."""
    options, refusal = read_command_line(train)
    results = options.pop("results", "")
    if results and launcher_rank() == 0:
        try:
            check_results(results)
        except ResultsError as error:
            refusal = str(error)
    store = store_of_all()  # kept: rank 0 may be its server, and `train` makes its group there
    exit_all_if_refused(refusal, store)
    steps, start = Steps(), time.perf_counter()
    register_optimizer_step_post_hook(steps)
    try:
        result = train(**options)
    except SystemExit as stop:
        if isinstance(stop.code, str):  # which Python prints, to end with 1
            print(stop.code, file=sys.stderr)
        leave(stop.code if isinstance(stop.code, int) else int(stop.code is not None))
    seconds = time.perf_counter() - start
    if steps.rank == 0:
        print(result.report(options["epochs"]))
        if results and not steps.ends:
            print(f"There were no steps, so {results} gets no row.")
        elif results:
            row = row_of(program(train), options, result, steps, seconds)
            leave(append_result_row(results, row))
    leave(0)


def leave(code: int) -> NoReturn:
    """End the process at once, because gloo can abort while Python shuts down.

    Seen with torch 2.13 in up to a third of the runs; torchrun then reports a good run as failed.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# The command line


class CommandLine(argparse.ArgumentParser):
    """A parser that prints nothing, so that only rank 0 reports: argparse would on every rank."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)

    def print_help(self, file: Any = None) -> None:
        if launcher_rank() == 0:
            super().print_help(file)


def read_command_line(train: Callable[..., Result]) -> tuple[dict[str, Any], str]:
    """The options by name, and a sentence that says what is wrong with them, or ""."""
    purpose = (train.__globals__["__doc__"] or "").partition("\n")[0]
    parser = CommandLine(f"{program(train)}.py", description=purpose, allow_abbrev=False)
    for name, parameter in inspect.signature(train).parameters.items():
        is_number = isinstance(parameter.default, int)
        parser.add_argument(
            "--" + name.replace("_", "-"),
            type=whole_number(least=int(name not in MAY_BE_ZERO)) if is_number else str,
            default=parameter.default,
            metavar="N" if is_number else "NAME" if parameter.default else "FILE",
            help=f"by default {parameter.default or 'none'}",
        )
    parser.add_argument("--results", default="", metavar="FILE", help="append a row to this table")
    try:
        return vars(parser.parse_args()), ""
    except ValueError as wrong:
        return {}, f"{parser.prog}: {wrong}; --help shows the options."


def whole_number(least: int) -> Callable[[str], int]:
    """A reader of whole numbers that are at least `least`."""

    def read(word: str) -> int:
        if not word.isdecimal() or int(word) < least:
            raise argparse.ArgumentTypeError(f"{word!r} is not a whole number from {least} on")
        return int(word)

    return read


def program(train: Callable[..., Result]) -> str:
    """The name of the chapter whose `train` this is."""
    return Path(inspect.getfile(train)).stem


# All ranks leave together, or none does


def launcher_rank() -> int:
    """This process's rank according to its launcher; 0 if it was started alone."""
    return int(os.environ.get("RANK", 0))


def store_of_all() -> dist.Store | None:
    """The launcher's store, in which all ranks meet; None if there is only one rank.

    Not a process group: `train` makes its own, and a rank that joins a second one can hang.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        return None
    store, _, _ = next(dist.rendezvous("env://"))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return dist.PrefixStore("run", store)  # a new store: hosts may count restarts differently
    return dist.PrefixStore(f"run {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)


def exit_all_if_refused(refusal: str, store: dist.Store | None) -> None:
    """If rank 0 has a `refusal`, print it once and end all ranks. Every rank must call this.

    torchrun kills the other ranks as soon as one ends, so rank 0 must have printed by then.
    """
    if refusal and launcher_rank() == 0:
        print(refusal, file=sys.stderr, flush=True)
    answer = from_rank_0(refusal, store) if store else refusal
    if refusal and not answer:  # this host got another command line than rank 0
        print(refusal, file=sys.stderr)
    if refusal or answer:
        leave(WRONG_INPUT)


def from_rank_0(words: str, store: dist.Store) -> str:
    """Return rank 0's `words` on every rank; if there are any, only after all ranks have them."""
    if launcher_rank() == 0:
        store.set("words", words)
    words = store.get("words").decode()
    if words:
        if store.add("heard", 1) == int(os.environ["WORLD_SIZE"]):
            store.set("all have heard", "")
        with contextlib.suppress(RuntimeError):  # the store may end with the first rank
            store.wait(["all have heard"])
    return words


# What was measured


class Steps:
    """A hook for optimizers: records when each step ended, on which device, and the hosts."""

    def __init__(self) -> None:
        self.ends: list[Any] = []  # seconds, or events of a GPU
        self.device = torch.device("cpu")
        self.rank, self.hosts = launcher_rank(), [socket.gethostname()]  # of each rank

    def __call__(self, optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> None:
        """Called by PyTorch after each step."""
        if not self.ends:
            self.device = optimizer.param_groups[0]["params"][0].device
            self.gather_hosts()
        self.ends.append(self.now())

    def gather_hosts(self) -> None:
        """Gather the host of each rank. Without a group, this process is the only rank."""
        self.rank = 0
        if dist.is_initialized():
            self.rank = dist.get_rank()
            own, self.hosts = self.hosts[0], [""] * dist.get_world_size()
            dist.all_gather_object(self.hosts, own)

    def now(self) -> float | torch.cuda.Event:
        """The time in seconds; on a GPU an event in its queue, because Python runs ahead of it."""
        if self.device.type != "cuda":
            return time.perf_counter()
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        return mark

    def milliseconds(self) -> float | None:
        """Median time between steps without the first few; None if there was only one step."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            times = [before.elapsed_time(after) for before, after in pairwise(self.ends)]
        else:
            times = [1e3 * (after - before) for before, after in pairwise(self.ends)]
        return float(np.median(times[WARM_UP:] or times)) if times else None


def row_of(
    name: str, options: dict[str, Any], result: Result, steps: Steps, seconds: float
) -> dict[str, Any]:
    """The row of this run, with the columns of `results`; floats to six digits."""
    milliseconds = steps.milliseconds() or nan
    hosts = list(dict.fromkeys(steps.hosts))
    last_epoch = torch.tensor(result.losses).chunk(options["epochs"])[-1]
    gpu = steps.device.type == "cuda"
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "program": name,
        "job": os.environ.get("SLURM_JOB_ID") or os.environ.get("PBS_JOBID", ""),
        "hosts": " ".join(hosts),
        "nodes": len(hosts),
        "ranks": len(steps.hosts),
        "device": torch.cuda.get_device_name(steps.device) if gpu else "cpu",
        **{option: options[option] for option in ("epochs", "batch_size", "width", "depth")},
        "steps": len(steps.ends),
        "loss": f"{last_epoch.mean():.6g}",
        "accuracy": f"{result.accuracy:.6g}",
        "step_ms": f"{milliseconds:.6g}",
        "samples_per_second": f"{1e3 * options['batch_size'] / milliseconds:.6g}",
        "seconds": f"{seconds:.6g}",
        "torch": torch.__version__,
    }


def append_result_row(results: str, row: dict[str, Any]) -> int:
    """Append the row; return the exit code. A row that cannot be written is printed, not lost."""
    try:
        append_row(results, row)
    except ResultsError as error:
        print(f"{error} The row was: {line_of(row).strip()}", file=sys.stderr)
        return 1
    return 0
