"""Many ranks on one machine, and what they did: for your own programs, tests and notebooks.

    from manyranks import launch, record_collectives, timeline, doctor, plan

    launch(worker, 10, ranks=4)  # worker(10) on four processes, as under torchrun

It starts ranks in tenths of a second, never hangs, and says which rank failed and why; it records
what went over the wire and through the memory, emulates a network, finds what is wrong in a
training script, and computes what a model needs on many GPUs. `manyranks.testing` is for pytest.
"""

import os
from multiprocessing import current_process, parent_process
from typing import TYPE_CHECKING

from manyranks.lazy_names import lazy_names

# Torch reads it when it is first imported, here and in the fork server. By default a thread of
# torch that waits for the others spins for milliseconds. Where more programs run than there are
# cores, it keeps the others from running: one process trained the digits in 10 s at a load of 12,
# and in 3 s so, as with one thread (torch 2.13).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:  # imported when first used: a rank must not pay for pandas
    # ruff: noqa: F401
    from manyranks.errors import (
        LaunchInterrupted,
        LaunchRefused,
        RankFailed,
        RanksHung,
        WorkbookError,
    )
    from manyranks.launcher.launch import launch
    from manyranks.launcher.limits import usable_cores
    from manyranks.network.links import Network
    from manyranks.planning.plan import plan
    from manyranks.planning.search import best_splits
    from manyranks.recording.collectives import record_collectives, run_and_record
    from manyranks.recording.memory import MemoryLedger
    from manyranks.recording.timeline import Timeline, timeline, timeline_of_files
    from manyranks.recording.timing import compare, speed_up, summary, synchronise, time_step
    from manyranks.script_doctor.diagnosis import doctor

# Whoever uses these is about to launch: the fork server imports torch while this process does.
LAUNCHING = ("launch", "record_collectives", "run_and_record", "timeline")


def start_fork_server(name: str) -> None:
    """Start the fork server if `name` is one with which somebody launches."""
    if name in LAUNCHING and not is_started_by_another():
        from manyranks.launcher.fork_server import warm_up

        warm_up()


def is_started_by_another() -> bool:
    """True in a rank, and in a process of multiprocessing, also while it imports the script."""
    starting = getattr(current_process(), "_inheriting", False)
    return "RANK" in os.environ or parent_process() is not None or starting


__getattr__, __dir__, __all__ = lazy_names(__name__, start_fork_server)
