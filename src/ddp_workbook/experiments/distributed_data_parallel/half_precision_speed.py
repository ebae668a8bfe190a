"""Step times in 32 and 16 bits on this machine's CPU, and what its processor has for them."""

from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F

from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.experiments.distributed_data_parallel.loss_scaling import FORMATS
from manyranks.launcher.launch import launch
from manyranks.recording.timing import compare, time_step

WIDTH, DEPTH, ROWS = 256, 4, 128
# A processor that has one of these multiplies matrices of 16 bits itself (names of /proc/cpuinfo).
FLAGS = {
    "avx512_bf16": "bfloat16, x86",
    "amx_bf16": "bfloat16, x86",
    "avx512_fp16": "float16, x86",
    "amx_fp16": "float16, x86",
    "bf16": "bfloat16, ARM",
    "fphp": "float16, ARM",
}
CPUINFO = Path("/proc/cpuinfo")


def flags(path: Path = CPUINFO) -> pd.DataFrame | str:
    """Which of FLAGS this processor has; a sentence where the system does not say."""
    if not path.is_file():
        return "This system does not list what its processor can do; the times below tell."
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    names = [line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Feat"))]
    has = set(names[0]) if names else set()
    rows = {flag: {"for": what, "here": flag in has} for flag, what in FLAGS.items()}
    return pd.DataFrame(rows).T.rename_axis("flag")


def step_times(rounds: int = 3) -> pd.DataFrame:
    """Seconds of a forward and backward in each format, in turns, with one thread."""
    return launch(times_of_this_rank, rounds, ranks=1)[0]


def times_of_this_rank(rounds: int) -> pd.DataFrame:
    """A worker: candidate, round, seconds, machine; the first candidate is float32."""
    torch.set_num_threads(1)
    digits, model = DigitsDataset(), DigitsMLP(WIDTH, DEPTH)
    images, labels = digits.images[:ROWS], digits.labels[:ROWS]

    def step(dtype: torch.dtype) -> None:
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()

    def time_once(dtype: torch.dtype) -> list[float]:
        return time_step(lambda: step(dtype), warm_up=0, repeats=1)

    candidates = {name: lambda dtype=dtype: time_once(dtype) for name, dtype in FORMATS.items()}
    return compare(candidates, rounds)
