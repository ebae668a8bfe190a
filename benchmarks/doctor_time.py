"""How long the doctor looks at a toy script, against the same script launched without it."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.table import Line, at_most, ratio_text, seconds_text, spread
from manyranks.launcher.calls import call_of
from manyranks.launcher.launch import run_ranks
from manyranks.script_doctor.diagnosis import doctor

SCRIPTS = Path(__file__).parents[1] / "tests" / "doctor_scripts" / "healthy"
LIMIT_S = 2.0  # seconds


def measure(quick: bool = False) -> list[Line]:
    """A line: each healthy script of the tests on two ranks, looked at and launched in turns."""
    with_doctor, plain = [], []
    for script in sorted(SCRIPTS.glob("*.py"))[: 3 if quick else None]:
        launch_script(script)  # modules that both import
        with_doctor.append(seconds(doctor, script))
        plain.append(seconds(launch_script, script))
    ratios = spread(
        doctor_s / plain_s for doctor_s, plain_s in zip(with_doctor, plain, strict=True)
    )
    line = Line(
        "doctor, a toy script on 2 ranks",
        seconds_text(with_doctor),
        spread(with_doctor).median,
        f"launched: {seconds_text(plain)}",
        ratios.median,
        ratio_text(ratios, "times as long"),
    )
    return [at_most(line, LIMIT_S)]


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
