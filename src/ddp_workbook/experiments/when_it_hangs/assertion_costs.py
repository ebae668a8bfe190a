"""What the lines that compare the ranks cost."""

from __future__ import annotations

import time
from collections.abc import Callable

import pandas as pd
import torch
import torch.distributed as dist
from torch import nn

import ddp_workbook
from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.chapters.when_it_hangs import assert_own_rows, assert_same_on_all_ranks
from manyranks.recording.dispatch_mode import Recorder

WIDTHS, REPEATS = (64, 1024, 2048), 5


def assertion_costs(width: int) -> tuple[int, int, float, float]:
    """Parameters of a model, bytes that a comparison of them sends, and seconds of two comparisons.

    The fastest of some.
    """
    device = setup()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width)).to(device)
    batch = torch.randn(32, width, device=device) + dist.get_rank()
    seconds = [fastest(assert_same_on_all_ranks, model), fastest(assert_own_rows, batch)]
    calls = list[dict]()
    with Recorder(calls):
        assert_same_on_all_ranks(model)
    return sum(p.numel() for p in model.parameters()), sum(c["bytes"] for c in calls), *seconds


def fastest(call: Callable, argument: object) -> float:
    """Seconds of the fastest of some calls."""
    seconds = []
    for _ in range(REPEATS):
        dist.barrier()
        start = time.perf_counter()
        call(argument)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def costs() -> ddp_workbook.TextTable:
    """A row for each size of a model, on two ranks."""
    rows = []
    for width in WIDTHS:
        *counts, weights, samples = ddp_workbook.launch(assertion_costs, width, ranks=2)[0]
        rows.append((*counts, 1e3 * weights, 1e3 * samples))
    columns = [
        "parameters",
        "bytes a rank sends to compare them",
        "assert_same_on_all_ranks, ms",
        "assert_own_rows, ms",
    ]
    return ddp_workbook.text_table(pd.DataFrame(rows, columns=columns))
