"""Run parts one after another, each in its own process, within a time budget."""

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

from manyranks.launcher.limits import usable_cores
from tools.gpu.parts import Part
from tools.set_up import ROOT

OK, FAILED, SKIPPED = "ok", "failed", "skipped"
BUDGET_S = 540.0  # seconds for all parts: a machine is often lent for ten minutes, set-up included
MIN_PART_S = 15.0  # seconds that a part needs to begin: torch and CUDA alone can take ten
LOGS = ROOT / "build" / "gpu"
INTERRUPTED = threading.Event()  # by Ctrl-C: no other part begins
POLL_S = 0.5
LOG_LINES = 12  # last lines of a part that failed
# Otherwise NCCL and gloo look for a network, which a single machine may not have.
LOOPBACK = {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a part; `reason` says why it is not ok."""

    name: str
    seconds: float
    state: str
    reason: str = ""


def run_all(
    parts: Sequence[Part],
    report: Callable[[Outcome], None],
    budget: float = BUDGET_S,
    logs: Path = LOGS,
) -> list[Outcome]:
    """The outcome of each part, in order; `report` is called with each at once.

    Parts that need to be alone come one after another, then the others side by side. A part that
    fails or takes too long does not stop the others. One that would begin less than MIN_PART_S
    seconds before the budget's end is skipped, and so are all after an interrupt.
    """
    end, outcomes = time.monotonic() + budget, {}

    def run_one(part: Part) -> None:
        remaining = end - time.monotonic()
        if INTERRUPTED.is_set():
            outcome = Outcome(part.name, 0, SKIPPED, "interrupted")
        elif lacking := missing(part):
            outcome = Outcome(part.name, 0, SKIPPED, f"not installed here: {', '.join(lacking)}")
        elif remaining < MIN_PART_S:
            words = f"no time left of {budget:.0f} s; name it in ARGS= to run it alone"
            outcome = Outcome(part.name, 0, SKIPPED, words)
        else:
            outcome = run(part, min(part.limit, remaining), logs)
        outcomes[part.name] = outcome
        report(outcome)

    INTERRUPTED.clear()
    for part in parts:
        if part.alone:
            run_one(part)
    with ThreadPoolExecutor(side_by_side()) as pool:
        waiting = [pool.submit(run_one, part) for part in parts if not part.alone]
        try:
            wait(waiting)
        except KeyboardInterrupt:  # comes to this thread alone
            INTERRUPTED.set()
    for future in waiting:
        future.result()
    return [outcomes[part.name] for part in parts]


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


def missing(part: Part) -> list[str]:
    """The packages that this part needs and this Python does not have."""
    return [name for name in part.needs if importlib.util.find_spec(name) is None]


def run(part: Part, limit: float, logs: Path = LOGS) -> Outcome:
    """Run one part for at most `limit` seconds, then end all of its processes."""
    logs.mkdir(parents=True, exist_ok=True)
    log, start = logs / f"{part.name}.log", time.monotonic()
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
            code = wait_for(process, limit)
            reason = "" if code == 0 else failure_reason(log, code)
        except subprocess.TimeoutExpired:
            reason = f"took more than {limit:.0f} s, and was ended"
        except KeyboardInterrupt:
            INTERRUPTED.set()
            reason = "interrupted"
        finally:
            end(process)
    return Outcome(part.name, time.monotonic() - start, FAILED if reason else OK, reason)


def wait_for(process: subprocess.Popen, limit: float) -> int:
    """Its exit code. Raises TimeoutExpired, and KeyboardInterrupt in each thread after one."""
    deadline = time.monotonic() + limit
    while True:
        try:
            return process.wait(min(POLL_S, max(0, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            if INTERRUPTED.is_set():
                raise KeyboardInterrupt from None
            if time.monotonic() >= deadline:
                raise


def environment() -> dict[str, str]:
    """The environment of a part; variables that a site or reader has set stay."""
    defaults = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONUNBUFFERED": "1"}
    loopback = LOOPBACK if sys.platform == "linux" else {}
    return defaults | loopback | os.environ


def failure_reason(log: Path, code: int) -> str:
    """The last line that a part wrote, or else how it ended."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    ending = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"{ending}: {last}" if last and code < 0 else last or ending


def last_lines(name: str, logs: Path = LOGS) -> list[str]:
    """The end of a part's log."""
    with contextlib.suppress(OSError):
        return (logs / f"{name}.log").read_text("utf-8", errors="replace").splitlines()[-LOG_LINES:]
    return []


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
