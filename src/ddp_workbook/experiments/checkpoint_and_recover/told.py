"""One rank is told to stop: when does each rank leave its loop?"""

from __future__ import annotations

import os
import signal
import threading
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist

import ddp_workbook
from ddp_workbook import figures
from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.chapters.stopping import listen, told_to_stop

AGREED, ALONE = "all ranks agree", "each rank looks at its own signal"
DELAY, STEPS = 0.1, 10_000  # seconds until the signal; steps, if it did not come


class Left(NamedTuple):
    """After how many steps a rank left its loop, and whether it had heard the signal itself."""

    steps: int
    heard: bool


def leave(who: int, how: str) -> Left:
    """Steps with an all-reduce each, until SIGTERM reaches rank `who` at some moment of a step."""
    device, heard = setup(), listen()
    gradient = torch.ones(1000, device=device)
    dist.barrier()
    if dist.get_rank() == who:
        threading.Timer(DELAY, os.kill, (os.getpid(), signal.SIGTERM)).start()
    step = 0
    while step < STEPS:
        step += 1
        dist.all_reduce(gradient, dist.ReduceOp.AVG)
        if told_to_stop(heard, device) if how == AGREED else heard:
            break
    return Left(step, bool(heard))


def play_stop() -> ddp_workbook.Play:
    """Controls for which rank gets the signal, and for how the ranks decide to leave."""
    return ddp_workbook.play(
        leave,
        left_plot,
        ranks=4,
        stills=[{"who": 3}, {"who": 0}, {"how": ALONE}],
        who=ddp_workbook.slider("SIGTERM to rank", range(4), 1),
        how=ddp_workbook.choice("when to leave", (AGREED, ALONE)),
    )


@figures.drawn
def left_plot(of_ranks: list[Left], **_: object) -> figures.Picture:
    """A bar a rank: the step after which it left."""
    names = [f"rank {rank}{', heard it' * left.heard}" for rank, left in enumerate(of_ranks)]
    table = pd.DataFrame({"left after": [left.steps for left in of_ranks]}, index=names)
    about = "The step after which each rank left the loop"
    return figures.bars(table, "steps", about, by="rank", totals=lambda end: f"{end:,.0f}")
