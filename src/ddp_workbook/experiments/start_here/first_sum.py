"""Page 00: what four processes did with one program."""

from __future__ import annotations

from collections.abc import Mapping

import ddp_workbook
from ddp_workbook.experiments.start_here.sum_of_ranks import (
    DIES,
    JOINS,
    LATE,
    OTHER_CALL,
    SHAPE,
    run_sum,
)
from ddp_workbook.experiments.start_here.sum_player import player_class, sum_plot


def play_sum() -> ddp_workbook.Play:
    """One sum, played with: the number of each of four ranks, and how rank 3 behaves."""
    controls = {
        f"x_{rank}": ddp_workbook.slider(f"x of rank {rank}", range(-5, 21), rank + 1)
        for rank in range(4)
    }
    behaves = ddp_workbook.choice("rank 3", (JOINS, LATE, OTHER_CALL, DIES, SHAPE))
    stills: list[Mapping[str, object]] = [
        {"x_3": 20},
        *({"rank_3": how} for how in (LATE, DIES, SHAPE, OTHER_CALL)),
    ]
    widget = player_class()(run_sum, sum_plot, 4, {**controls, "rank_3": behaves}, stills)
    widget.first()
    return widget
