"""Llama 3 405B's three configurations as published (arXiv 2407.21783v3, table 4), and planned."""

import pandas as pd

from ddp_workbook.experiments.fully_sharded.planning import herd

# GPUs, context, data, sequence length, sequences of a data group in a step, MFU in %
TABLE_4 = [
    (8192, 1, 64, 8192, 32, 43),
    (16384, 1, 128, 8192, 16, 41),
    (16384, 16, 8, 131072, 16, 38),
]


def trainings() -> pd.DataFrame:
    """A row for each: its degrees, its step, and beside its MFU bubble and MFU by `plan`."""
    rows = []
    for gpus, context, data, sequence, sequences, mfu in TABLE_4:
        result = herd(gpus, sequence=sequence, context=context)
        rows.append(
            {
                "GPUs": f"{gpus:,}",
                "tensor": result.settings.tensor,
                "context": context,
                "pipeline": result.settings.pipeline,
                "data": data,
                "sequence length": f"{sequence:,}",
                "sequences of a data group": sequences,
                "MFU": f"{mfu}%",
                "bubble by plan": f"{result.bubble:.0%}",
                "MFU by plan": f"{result.mfu:.0%}",
            }
        )
    return pd.DataFrame(rows)
