"""Runs a pipeline's schedule in PyTorch: from its rows, and on real ranks beside one process."""

import logging
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from ddp_workbook.judging.pipeline_schedules import Schedule, read
from manyranks.errors import RankFailed, RanksHung
from manyranks.launcher.launch import launch

ROWS, WIDTH = 2, 4  # rows of a micro-batch; a stage is one layer
TIMEOUT_S = 20.0  # of a run, which takes a second
EQUAL = 1e-5  # a difference that is rounding; a wrong order gives more than 1e-3


def rows_for_torch(schedule: Schedule) -> list[list[str]]:
    """The cells of each rank, as PyTorch writes them."""
    return [[str(cell) for cell in row] for row in schedule.cells]


def load(
    stages: Sequence[PipelineStage],
    rows: Sequence[Sequence[str]],
    micro_batches: int,
    loss: Callable[[Tensor, Tensor], Tensor],
) -> _PipelineScheduleRuntime:
    """PyTorch's runtime with this schedule, which it reads from a file: a row a rank."""
    schedule = _PipelineScheduleRuntime(list(stages), micro_batches, loss)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.csv"
        path.write_text("".join(f"{','.join(row)}\n" for row in rows))
        schedule._load_csv(str(path))
    return schedule


def run_rank(rows: Sequence[Sequence[str]], micro_batches: int) -> float:
    """A step on this rank, with a stage on each: how far its gradients are from one process."""
    dist.init_process_group("gloo")
    logging.getLogger("torch.distributed.pipelining").setLevel(logging.CRITICAL)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in rows))
    x, y = torch.randn(2, ROWS * micro_batches, WIDTH)
    F.mse_loss(model(x), y).backward()
    expected = [parameter.grad for parameter in model[rank].parameters()]
    model.zero_grad()
    stage = PipelineStage(model[rank], rank, ranks, torch.device("cpu"))
    load([stage], rows, micro_batches, F.mse_loss).step(x, target=y)
    pairs = zip(model[rank].parameters(), expected, strict=True)
    furthest = max((own.grad - one).abs().max().item() for own, one in pairs)
    dist.destroy_process_group()
    return furthest


@cache
def what_went_wrong(lines: tuple[str, ...], micro_batches: int) -> str:
    """What real ranks do with these lines instead of the step of one process; "" if it is that."""
    rows = rows_for_torch(read(lines, micro_batches))
    try:
        distances = launch(run_rank, rows, micro_batches, ranks=len(lines), timeout=TIMEOUT_S)
    except RanksHung:
        return "PyTorch runs it, and ranks wait for messages that do not come"
    except RankFailed:
        return "PyTorch runs it and stops with an error"
    wrong = [f"{rank}" for rank, distance in enumerate(distances) if not distance < EQUAL]
    return f"other gradients than those of one process, on rank {', '.join(wrong)}" if wrong else ""
