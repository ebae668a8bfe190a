"""The chapter's program under torchrun, with a line for each step, and an accident if one is asked.

    torchrun … -m ddp_workbook.experiments.checkpoint_and_recover.watched \\
        --accident host-dies 12 --pace 0.1 --saved work/run

Beside its own options it takes those of the chapter's program.
"""

import argparse
import json
import os
import signal
import sys
import time
from typing import Any

import psutil
from torch.optim.optimizer import register_optimizer_step_post_hook

from ddp_workbook.chapters import checkpoint_and_recover, checkpointing

SAID = "watched "  # the start of a line that is meant for a table
NOTE = "A_NOTE"  # a variable of the environment that the program sets


def say(event: str, step: int) -> None:
    """A line with the time, this rank's place, and what has happened after which step."""
    row = {"event": event, "step": step, "time": time.time(), "pid": os.getpid()}
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"):
        row[name] = int(os.environ.get(name, 0))  # launch has no restarts
    print(SAID + json.dumps(row | {NOTE: os.environ.get(NOTE, "")}), flush=True)


def happens(accident: str) -> None:
    """Called on each rank after the step of the accident."""
    agent = psutil.Process(os.getppid())
    first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    if accident == "host-dies":  # as if the power were cut
        for process in (agent, *agent.children()):
            if process.pid != os.getpid():
                process.kill()
        os.kill(os.getpid(), signal.SIGKILL)
    elif accident in signal.Signals.__members__ and os.environ["RANK"] == "0":
        agent.send_signal(signal.Signals[accident])
    elif accident == "rank-1-dies" and os.environ["RANK"] == "1" and first:
        os.kill(os.getpid(), signal.SIGKILL)


def train(accident: tuple[str, int] = ("", 0), pace: float = 0, **run) -> None:
    """The chapter's training, for `launch`."""
    watch(*accident, pace)
    checkpoint_and_recover.train(**run)


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument(
        "--accident", nargs=2, default=["", "0"], help="what happens, at which step"
    )
    parser.add_argument("--pace", type=float, default=0, help="seconds that a step is made longer")
    parser.add_argument("--slow-disk", type=float, default=0, help="seconds that fsync takes")
    own, sys.argv[1:] = parser.parse_known_args()
    accident, step = own.accident
    watch(accident, int(step), own.pace, own.slow_disk)
    say("started", 0)
    os.environ[NOTE] = "set by the attempt before"
    checkpoint_and_recover.run(checkpoint_and_recover.train)


def watch(accident: str, at: int, pace: float = 0, slow_disk: float = 0) -> None:
    """Say what happens in the training of this process, and let the accident happen."""
    load, fsync = checkpoint_and_recover.Checkpointer.load, os.fsync
    step = 0

    def load_and_say(self) -> dict:
        nonlocal step
        say("joined", 0)
        state = load(self)
        step = state["step"]
        say("loaded", step)
        return state

    def after_step(*_) -> None:
        nonlocal step
        step += 1
        say("step", step)
        time.sleep(pace)
        if step == at:
            happens(accident)

    def slow_fsync(file: int) -> None:
        time.sleep(slow_disk)
        fsync(file)

    loader: Any = checkpoint_and_recover.Checkpointer  # whose names are replaced, in this rank
    system: Any = checkpointing.os
    loader.load, system.fsync = load_and_say, slow_fsync
    register_optimizer_step_post_hook(after_step)


if __name__ == "__main__":
    main()
