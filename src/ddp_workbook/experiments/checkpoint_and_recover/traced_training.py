"""The chapter's training, with a line for each step, and an accident if one is asked.

    torchrun … -m ddp_workbook.experiments.checkpoint_and_recover.traced_training \\
        --accident host-dies 12 --pace 0.1 --saved work/run

Under torchrun; beside its own options it takes those of the chapter's program.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TextIO

import psutil

from ddp_workbook.chapters import checkpoint_and_recover, checkpointing

EVENT_PREFIX = "watched "  # the start of a line that is meant for a table
NOTE = "A_NOTE"  # a variable of the environment that the program sets


def log_event(event: str, step: int, to: TextIO | None = None, **more: float) -> None:
    """A line with the time, this rank's place, and what has happened after which step."""
    row = {"event": event, "step": step, "time": time.time(), "pid": os.getpid()} | more
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"):
        row[name] = int(os.environ.get(name, 0))  # launch has no restarts
    print(EVENT_PREFIX + json.dumps(row | {NOTE: os.environ.get(NOTE, "")}), file=to, flush=True)


def inject_fault(fault: str) -> None:
    """Called on each rank after the step of the accident."""
    agent = psutil.Process(os.getppid())
    first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    if fault == "host-dies":  # as if the power were cut
        for process in (agent, *agent.children()):
            if process.pid != os.getpid():
                process.kill()
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault in signal.Signals.__members__ and os.environ["RANK"] == "0":
        agent.send_signal(signal.Signals[fault])
    elif fault == "rank-1-dies" and os.environ["RANK"] == "1" and first:
        os.kill(os.getpid(), signal.SIGKILL)


def train(fault: tuple[str, int] = ("", 0), pace: float = 0, **run) -> None:
    """The chapter's training, for `launch`."""
    name, step = fault
    trace_training(partial(inject_fault, name), step, pace)
    checkpoint_and_recover.train(**run)


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument(
        "--accident", nargs=2, default=["", "0"], help="what happens, at which step"
    )
    parser.add_argument("--pace", type=float, default=0, help="seconds that a step is made longer")
    parser.add_argument("--slow-disk", type=float, default=0, help="seconds that fsync takes")
    options, sys.argv[1:] = parser.parse_known_args()
    accident, step = options.accident
    trace_training(partial(inject_fault, accident), int(step), options.pace, options.slow_disk)
    log_event("started", 0)
    os.environ[NOTE] = "set by the attempt before"
    checkpoint_and_recover.run(checkpoint_and_recover.train)


def trace_training(
    fault: Callable[[], None],
    at: int,
    pace: float = 0,
    slow_disk: float = 0,
    log: Callable[..., None] = log_event,
) -> None:
    """Say what happens in the training of this process, and let the accident happen after a step.

    A loss is the mean over the ranks, as the training has it when it asks whether to stop.
    """
    load, fsync = checkpoint_and_recover.Checkpointer.load, os.fsync
    forward_and_backward = checkpoint_and_recover.forward_and_backward
    stop_requested = checkpoint_and_recover.stop_requested
    loss: Any = None  # `train` sums it over the ranks, in place
    step = 0

    def load_and_log(self) -> dict:
        nonlocal step
        log("joined", 0)
        state = load(self)
        step = state.get("step", 0)
        log("loaded", step)
        return state

    def keep_loss(*args) -> Any:
        nonlocal loss
        loss = forward_and_backward(*args)
        return loss

    def after_step(*args) -> bool:
        nonlocal step
        step += 1
        log("step", step, loss=loss.item())
        time.sleep(pace)
        if step == at:
            fault()
        return stop_requested(*args)

    def slow_fsync(file: int) -> None:
        time.sleep(slow_disk)
        fsync(file)

    chapter: Any = checkpoint_and_recover  # whose names are replaced, in this rank
    system: Any = checkpointing.os
    chapter.Checkpointer.load, system.fsync = load_and_log, slow_fsync
    chapter.forward_and_backward, chapter.stop_requested = keep_loss, after_step


if __name__ == "__main__":
    main()
