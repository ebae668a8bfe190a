"""Trainings of chapter 08 that are killed, or told to stop, at a moment of the test's choice."""

import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

from ddp_workbook.chapters import checkpoint_and_recover, checkpointing, locking
from ddp_workbook.chapters.digits import DigitsMLP, Result
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup


def killed_at(
    moment: float, victim: int, saved: str, signal_number: int = signal.SIGKILL, **run
) -> Result:
    """Train; `moment` seconds after all ranks have met, rank `victim` gets the signal.

    SIGKILL also hits in the middle of a save: with every=1 most of the time goes there.
    """
    if int(os.environ["RANK"]) == victim:
        send_after_load(checkpoint_and_recover.Checkpointer, moment, signal_number)
    return checkpoint_and_recover.train(saved=saved, **run)


def send_after_load(checkpointer: Any, moment: float, signal_number: int = signal.SIGKILL) -> None:
    """Have this very process get the signal so many seconds after it has begun to load."""
    load = checkpointer.load

    def send() -> None:
        time.sleep(moment)
        os.kill(os.getpid(), signal_number)

    def load_and_wait(self):
        threading.Thread(target=send, daemon=True).start()
        return load(self)

    checkpointer.load = load_and_wait


def with_a_full_disk(after: int, saved: str, **run) -> Result:
    """Train; from the save after this many steps on, no file can grow beyond 1 kB."""
    fill_disk(checkpoint_and_recover.Checkpointer, after)
    return checkpoint_and_recover.train(saved=saved, **run)


def fill_disk(checkpointer: Any, after: int) -> None:
    """In this rank, from the save after this many steps on."""
    save = checkpointer.save

    def save_or_not(self, step, **more):
        if step >= after:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        save(self, step, **more)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)

    checkpointer.save = save_or_not


def saves_once(step: int, saved: str, version: int = checkpointing.FORMAT) -> None:
    """Save an untrained model as that of this step, in this version of the format."""
    checkpointing.FORMAT = version
    setup()
    model = DigitsMLP(checkpoint_and_recover.WIDTH, checkpoint_and_recover.DEPTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checkpointer = checkpointing.Checkpointer(saved, model, optimizer)
    checkpointer.load()
    checkpointer.save(step, losses=[0.0] * step)
    cleanup()


def without_patience(saved: str, **run) -> Result:
    """Train, unless another run has the folder right now."""
    locking.TIMEOUT_S = 0
    return checkpoint_and_recover.train(saved=saved, **run)


def hold(saved: str, seconds: str = "1000") -> None:
    """Lock the folder as a training does."""
    lock = locking.lock(Path(saved))
    print("holds it", flush=True)
    time.sleep(float(seconds))
    lock.close()


if __name__ == "__main__":
    hold(*sys.argv[1:])
