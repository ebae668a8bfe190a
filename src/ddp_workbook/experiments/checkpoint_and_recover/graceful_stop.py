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
from ddp_workbook.page.display import PlainText, TextTable, text_table
from manyranks.errors import RankFailed
from manyranks.launcher.calls import Call
from manyranks.launcher.launch import run_ranks

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


def stop_ranks(who: int, how: str) -> list[LoopExit] | RankFailed:
    """In the kernel: what became of four ranks, or the failure that ended them."""
    try:
        return run_ranks(Call(run_until_signal, (who, how)), 4, quiet=True)
    except RankFailed as failure:
        return failure


def play_stop() -> ddp_workbook.Play:
    """Controls for which rank gets the signal, and for how the ranks decide to leave."""
    return ddp_workbook.play(
        stop_ranks,
        exit_report,
        ranks=None,
        stills=[{"who": 3}, {"how": AGREEMENT, "who": 0}, {"how": AGREEMENT}],
        who=ddp_workbook.slider("SIGTERM to rank", range(4), 1),
        how=ddp_workbook.choice("when to leave", (ALONE, AGREEMENT)),
    )


def exit_report(outcome: list[LoopExit] | RankFailed, **_: object) -> PlainText | TextTable:
    """Where each rank stands if they do not leave together, or the step after which each left."""
    if isinstance(outcome, RankFailed):
        from ddp_workbook.page.play import error_text  # late: ranks import nothing that draws

        return PlainText(error_text(outcome))
    rows = [
        {
            "rank": rank,
            "heard the signal": "yes" if one.signalled else "no",
            "left after step": step,
        }
        for rank, one in enumerate(outcome)
        for step in [one.steps]
    ]
    return text_table(pd.DataFrame(rows))
