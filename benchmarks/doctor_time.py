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
LONGEST = 2.0  # seconds


def measure(quick: bool = False) -> list[Line]:
    """A line: each healthy script of the tests on two ranks, looked at and launched in turns."""
    looked, plain = [], []
    for script in sorted(SCRIPTS.glob("*.py"))[: 3 if quick else None]:
        launched(script)  # modules that both import
        looked.append(seconds(doctor, script))
        plain.append(seconds(launched, script))
    ratios = spread(one / other for one, other in zip(looked, plain, strict=True))
    line = Line(
        "doctor, a toy script on 2 ranks",
        seconds_text(looked),
        spread(looked).median,
        f"launched: {seconds_text(plain)}",
        ratios.median,
        ratio_text(ratios, "times as long"),
    )
    return [at_most(line, LONGEST)]


def launched(script: Path) -> None:
    """Run a script as it is; what it writes is thrown away."""
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nothing:
        elsewhere = {"TMPDIR": folder}
        run_ranks(call_of(script, (), {}, 2), 2, quiet=True, output=nothing, environment=elsewhere)


def seconds(call: Callable, *args: object) -> float:
    """How long one call takes."""
    begun = time.perf_counter()
    call(*args)
    return time.perf_counter() - begun
