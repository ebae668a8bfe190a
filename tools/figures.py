"""Draw every picture under figs/ anew: `make figures`.

All are made from committed data, so that each run gives the same bytes (a test compares them). With
`ARGS=--record`, the run that the README's picture shows is recorded again first. New timings come
from `make benchmark`.
"""

import sys
from pathlib import Path

from benchmarks import recorded_run
from ddp_workbook.experiments.distributed_data_parallel import step_times
from ddp_workbook.experiments.samplers.pinning import pinning_plot
from manyranks.files import write_atomically
from tools import animation
from tools.set_up import ROOT


def draw(folder: Path) -> list[Path]:
    """Write all pictures to `folder`; return their paths."""
    steps = step_times.read_timings(step_times.STEP_TIMES)
    parts = step_times.read_timings(step_times.BREAKDOWN)
    return [
        write_atomically(folder / "readme.svg", animation.picture(animation.read_record())),
        pinning_plot().save(folder / "samplers_pinning.svg"),
        *recorded_run.draw(steps, parts, folder),
    ]


def main() -> None:
    """Draw them into figs/, and name each."""
    if sys.argv[1:] == ["--record"]:
        print(animation.write_record().relative_to(ROOT))
    elif sys.argv[1:]:
        sys.exit("make figures takes no words but ARGS=--record.")
    for path in draw(ROOT / "figs"):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
