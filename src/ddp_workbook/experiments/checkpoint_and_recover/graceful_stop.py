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
from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.chapters.stopping import listen, stop_requested
from manyranks import figures

AGREEMENT, ALONE = "all ranks agree", "each rank looks at its own signal"
SIGNAL_AFTER_S, STEPS = 0.1, 10_000  # seconds until the signal; steps, if it did not come


class LoopExit(NamedTuple):
    """After how many steps a rank left its loop, and whether it had heard the signal itself."""

    steps: int
    signalled: bool


def run_until_signal(who: int, how: str) -> LoopExit:
    """Steps with an all-reduce each, until SIGTERM reaches rank `who` at some moment of a step."""
    device, signals = setup(), listen()
    gradient = torch.ones(1000, device=device)
    dist.barrier()
    if dist.get_rank() == who:
        threading.Timer(SIGNAL_AFTER_S, os.kill, (os.getpid(), signal.SIGTERM)).start()
    step = 0
    while step < STEPS:
        step += 1
        dist.all_reduce(gradient, dist.ReduceOp.AVG)
        if stop_requested(signals, device) if how == AGREEMENT else signals:
            break
    return LoopExit(step, bool(signals))


def play_stop() -> ddp_workbook.Play:
    """Controls for which rank gets the signal, and for how the ranks decide to leave."""
    return ddp_workbook.play(
        run_until_signal,
        exit_plot,
        ranks=4,
        stills=[{"who": 3}, {"who": 0}, {"how": ALONE}],
        who=ddp_workbook.slider("SIGTERM to rank", range(4), 1),
        how=ddp_workbook.choice("when to leave", (AGREEMENT, ALONE)),
    )


@figures.house_style
def exit_plot(of_ranks: list[LoopExit], **_: object) -> figures.Picture:
    """A bar a rank: the step after which it left."""
    names = [
        f"rank {rank}{', heard it' if loop_exit.signalled else ''}"
        for rank, loop_exit in enumerate(of_ranks)
    ]
    table = pd.DataFrame({"left after": [loop_exit.steps for loop_exit in of_ranks]}, index=names)
    about = "The step after which each rank left the loop"
    return figures.bars(table, "steps", about, by="rank", totals=lambda end: f"{end:,.0f}")
