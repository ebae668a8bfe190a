"""How long the doctor looks at a toy script, without its second run, and against a plain launch."""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

from benchmarks.table import Line, at_most, ratio_text, seconds_text, spread
from manyranks.launcher.calls import call_of
from manyranks.launcher.launch import run_ranks
from manyranks.script_doctor import diagnosis
from manyranks.script_doctor.comparison import Comparison, Kind

SCRIPTS = Path(__file__).parents[1] / "tests" / "doctor_scripts" / "healthy"
LIMIT_S = 2.0  # seconds
LIMIT_OF_COMPARISON = 1.6  # times as long as without it


def measure(quick: bool = False) -> list[Line]:
    """Two lines: the healthy scripts of the tests on two ranks, in turns with less of the same."""
    whole, without, plain = [], [], []
    for script in sorted(SCRIPTS.glob("*.py"))[: 3 if quick else None]:
        launch_script(script)  # modules that both import
        whole.append(seconds(diagnosis.doctor, script))
        without.append(seconds(without_comparison, script))
        plain.append(seconds(launch_script, script))
    line = beside("doctor, a toy script on 2 ranks", whole, "launched", plain)
    second = beside("the same, for its run on one rank", whole, "without that run", without)
    target = f"at most {LIMIT_OF_COMPARISON:g} times"
    met = bool(second.ratio is not None and second.ratio <= LIMIT_OF_COMPARISON)
    return [at_most(line, LIMIT_S), replace(second, target=target, met=met)]


def beside(what: str, measured: list[float], other: str, others: list[float]) -> Line:
    """Times of the same scripts in turns."""
    ratios = spread(mine / its for mine, its in zip(measured, others, strict=True))
    return Line(
        what,
        seconds_text(measured),
        spread(measured).median,
        f"{other}: {seconds_text(others)}",
        ratios.median,
        ratio_text(ratios, "times as long"),
    )


def without_comparison(script: Path) -> None:
    """The doctor, which does not run the script on one rank."""
    nothing = Comparison(Kind.NOT_COMPARED)
    with mock.patch.object(diagnosis, "compare", lambda _: nothing):
        diagnosis.doctor(script)


def launch_script(script: Path) -> None:
    """Run a script as it is; what it writes is thrown away."""
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nothing:
        elsewhere = {"TMPDIR": folder}
        run_ranks(call_of(script, (), {}, 2), 2, quiet=True, output=nothing, environment=elsewhere)


def seconds(call: Callable, *args: object) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    call(*args)
    return time.perf_counter() - start
