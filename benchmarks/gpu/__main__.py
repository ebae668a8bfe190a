"""Run the parts of `make gpu`, or some of them: `make gpu ARGS="memory tests"`.

The exit code is 0 only if all parts ran and none failed.
"""

import argparse
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from benchmarks.gpu.measurements import MEASUREMENTS
from ddp_workbook.page.pages import all_pages
from manyranks.launcher.limits import usable_cores
from tools.set_up import ROOT

OK, FAILED, SKIPPED = "ok", "failed", "skipped"
BUDGET_S = 540.0  # for all parts: a machine is often lent for ten minutes, set-up included
MEASUREMENT_S, TESTS_S, PAGE_S = 120, 180, 150  # a part that hangs must not take the others' time
MIN_PART_S = 15.0  # that a part needs to begin: torch and CUDA alone can take ten
POLL_S = 0.2
LOGS = ROOT / "build" / "gpu"
LOG_LINES = 12  # last lines of a part that failed
INTERRUPTED = threading.Event()  # by Ctrl-C: the parts end, and no other begins
FOR_TESTS = ("pytest",)
FOR_PAGES = ("nbclient", "nbformat", "ipykernel", "ipywidgets", "jupyterlab_pygments")
# Otherwise NCCL and gloo look for a network, which a single machine may not have.
LOOPBACK = {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
NO_GPU = (
    "make gpu measures an NVIDIA GPU, but torch {version} sees none here; on a machine that has "
    "one, make gpu TORCH=cuda or TORCH=site gets a torch that sees it."
)


@dataclass(frozen=True)
class Part:
    """Name, time limit in seconds, Python's arguments, and the packages that it needs.

    `alone`: nothing else runs beside it, because it measures.
    """

    name: str
    limit: float
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()
    alone: bool = True


@dataclass(frozen=True)
class Outcome:
    """The outcome of a part; `reason` says why it is not ok."""

    name: str
    seconds: float
    state: str
    reason: str = ""


def main(words: list[str] | None = None) -> int:
    """All that one NVIDIA GPU can show: measurements to data/gpu, tests marked gpu1, the pages."""
    if not torch.cuda.is_available():
        sys.exit(NO_GPU.format(version=torch.__version__))
    there = {part.name: part for part in parts()}
    parser = argparse.ArgumentParser(prog="make gpu", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="PART", help="all, or these")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds for all together")
    options = parser.parse_args(words)
    if unknown := [name for name in options.names if name not in there]:
        parser.error(f"there is no part {unknown[0]!r}; there are: {', '.join(there)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the parts must end with this
    start = time.monotonic()
    outcomes = run_all([there[name] for name in options.names or there], tell, options.budget)
    print(f"{time.monotonic() - start:.0f} s in all. Measurements are in data/gpu.")
    for state in (FAILED, SKIPPED):
        if names := [outcome.name for outcome in outcomes if outcome.state == state]:
            print(f"{state}: {', '.join(names)}")
    return int(any(outcome.state != OK for outcome in outcomes))


def tell(outcome: Outcome) -> None:
    """A line as soon as a part has ended, and the end of its log if it failed."""
    lines = [f"{outcome.name}: {outcome.state}, {outcome.seconds:.0f} s. {outcome.reason}".rstrip()]
    if outcome.state == FAILED:
        log = LOGS / f"{outcome.name}.log"
        text = log.read_text(encoding="utf-8", errors="replace")
        lines += [f"  {line}" for line in text.splitlines()[-LOG_LINES:]]
        lines.append(f"  The whole log: {log}")
    print("\n".join(lines), flush=True)


# The parts


def parts() -> list[Part]:
    """All parts, the measurements first, because they are worth most."""
    measuring, on_page = "benchmarks.gpu.measurements", "benchmarks.gpu.page"
    stems = sorted(path.stem for path in all_pages())
    return [
        *(Part(name, MEASUREMENT_S, ("-m", measuring, name)) for name in MEASUREMENTS),
        tests(),
        *(Part(stem, PAGE_S, ("-m", on_page, stem), FOR_PAGES, alone=False) for stem in stems),
    ]


def tests() -> Part:
    """The tests marked `gpu1`, without plugins: a site's own may warn, and a warning is an error.

    Only files that have such tests are collected, because others import what a site may lack.
    """
    files = [
        str(path.relative_to(ROOT))
        for path in sorted(ROOT.glob("tests/**/test_*.py"))
        if "mark.gpu1" in path.read_text(encoding="utf-8")
    ]
    options = ("-q", "-m", "gpu1", "-p", "no:cacheprovider")
    return Part("tests", TESTS_S, ("-m", "pytest", *options, *files), FOR_TESTS, alone=False)


# Running them


def run_all(
    parts: Sequence[Part], report: Callable[[Outcome], None], budget: float = BUDGET_S
) -> list[Outcome]:
    """The outcome of each part; `report` is called with each at once.

    Parts that need to be alone come one after another, then the others side by side. A part that
    fails or takes too long does not stop the others. One that would begin less than MIN_PART_S
    seconds before the budget's end is skipped, and so are all after an interrupt.
    """
    end, outcomes = time.monotonic() + budget, []

    def run_one(part: Part) -> Outcome:
        remaining = end - time.monotonic()
        lacking = [name for name in part.needs if importlib.util.find_spec(name) is None]
        if INTERRUPTED.is_set():
            outcome = Outcome(part.name, 0, SKIPPED, "interrupted")
        elif lacking:
            outcome = Outcome(part.name, 0, SKIPPED, f"not installed here: {', '.join(lacking)}")
        elif remaining < MIN_PART_S:
            words = f"no time left of {budget:.0f} s; name it in ARGS= to run it alone"
            outcome = Outcome(part.name, 0, SKIPPED, words)
        else:
            outcome = run(part, min(part.limit, remaining))
        report(outcome)
        return outcome

    INTERRUPTED.clear()
    for alone in (True, False):
        with ThreadPoolExecutor(1 if alone else side_by_side()) as pool:
            futures = [pool.submit(run_one, part) for part in parts if part.alone == alone]
            try:
                wait(futures)
            except KeyboardInterrupt:  # comes to this thread only
                INTERRUPTED.set()
        outcomes += [future.result() for future in futures]
    return outcomes


def side_by_side() -> int:
    """How many parts that need not be alone run at once: each has ranks of its own.

    One, if the GPU is for one process only.
    """
    query = ["nvidia-smi", "--query-gpu=compute_mode", "--format=csv,noheader"]
    try:
        modes = subprocess.run(query, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        modes = ""
    return 1 if "Exclusive" in modes else max(1, usable_cores() // 2)


def run(part: Part, limit: float) -> Outcome:
    """Run one part for at most `limit` seconds, then end all of its processes."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log, start = LOGS / f"{part.name}.log", time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *part.arguments],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches only this process, which ends the part
        )
        try:
            reason = failure_reason(process, start + limit, log)
        except subprocess.TimeoutExpired:
            reason = f"took more than {limit:.0f} s, and was ended"
        finally:
            end(process)
    return Outcome(part.name, time.monotonic() - start, FAILED if reason else OK, reason)


def environment() -> dict[str, str]:
    """The environment of a part; variables that a site or reader has set stay."""
    defaults = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUNBUFFERED": "1"}
    loopback = LOOPBACK if sys.platform == "linux" else {}
    return defaults | loopback | os.environ


def failure_reason(process: subprocess.Popen, deadline: float, log: Path) -> str:
    """Wait for a part; return "" if all went well, else the last line that it wrote, or its end.

    Raises TimeoutExpired after the deadline.
    """
    while not INTERRUPTED.is_set():
        try:
            code = process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            if time.monotonic() >= deadline:
                raise
            continue
        if code == 0:
            return ""
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        ending = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"{ending}: {last}" if last and code < 0 else last or ending
    return "interrupted"


def end(process: subprocess.Popen) -> None:
    """Kill a part and all that it started, including kernels and ranks in other sessions."""
    family = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()
    psutil.wait_procs(family, timeout=5)


if __name__ == "__main__":
    sys.exit(main())
