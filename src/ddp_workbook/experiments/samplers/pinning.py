"""Copies to a GPU from ordinary and from pinned memory."""

import time

import pandas as pd
import torch

from ddp_workbook.launcher.launch import launch

NO_GPU = "No GPU here, so nothing is measured: pinning is of use only for copies to a GPU."


def copy_to_gpu(pinned: bool, mebibytes: int = 256) -> tuple[float, float]:
    """Milliseconds until Python continues, and until the data are on the GPU; the best of three."""
    batch = torch.ones(mebibytes, 2**18, pin_memory=pinned)  # a row is one MiB
    there, seen = torch.empty_like(batch, device="cuda"), []
    for _ in range(4):
        torch.cuda.synchronize()
        start = time.perf_counter()
        there.copy_(batch, non_blocking=True)
        returned = time.perf_counter()
        torch.cuda.synchronize()
        seen.append((1e3 * (returned - start), 1e3 * (time.perf_counter() - start)))
    return min(seen[1:], key=lambda pair: pair[1])  # the first one also starts CUDA


def copies_to_gpu() -> pd.DataFrame | str:
    """A row for each kind of memory, for 256 MiB; a sentence on a machine without a GPU."""
    if not torch.cuda.is_available():
        return NO_GPU
    rows = {
        kind: launch(copy_to_gpu, pinned, ranks=1)[0]
        for kind, pinned in {"ordinary": False, "pinned": True}.items()
    }
    columns = ["ms until Python continues", "ms until the data are there"]
    return pd.DataFrame(rows, columns).T.round(2)
