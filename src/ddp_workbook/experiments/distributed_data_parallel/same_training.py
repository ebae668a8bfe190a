"""How far trainings are from each other: DDP's ranks from one process, and between themselves."""

from collections.abc import Mapping, Sequence

import pandas as pd

from ddp_workbook.digits import Trained, furthest


def differences(runs: Mapping[int, Sequence[Trained]], alone: Trained) -> pd.DataFrame:
    """A row for each number of ranks: largest difference of weights from `alone`, and in between.

    `runs` has what `launch` returned for each number of ranks.
    """
    rows = {
        ranks: {
            "from one process": max(furthest(run.weights, alone.weights) for run in of_ranks),
            "between the ranks": max(
                furthest(run.weights, of_ranks[0].weights) for run in of_ranks
            ),
        }
        for ranks, of_ranks in runs.items()
    }
    return pd.DataFrame(rows).T.rename_axis("ranks")
