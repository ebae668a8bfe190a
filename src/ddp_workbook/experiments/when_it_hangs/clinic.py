"""The patients of the ward, seen by the doctor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard

import ddp_workbook
from ddp_workbook import figures
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.experiments.when_it_hangs.patients import PATIENTS, Chart, batches
from ddp_workbook.experiments.when_it_hangs.ward import admitted

if TYPE_CHECKING:
    from ddp_workbook.checkup.diagnosis import Diagnosis

SILENT = "AHIJKL"


@figures.drawn
def curves() -> figures.Picture:
    """The losses that rank 0 logs, of the patient that is well and of the five silent ones."""
    logged = {
        f"patient {one}": ddp_workbook.launch(admitted, one, ranks=4)[0][1].chart.losses
        for one in SILENT
    }
    table = pd.DataFrame(logged, index=pd.RangeIndex(1, 5, name="step"))
    return figures.lines(table, "loss on rank 0", "Six programs, one of which is right")


def treated(patient: str) -> None:
    """Run one program on this rank."""
    setup()
    torch.manual_seed(0)
    PATIENTS[patient].program(Chart())
    cleanup()


def seen(patient: str, ranks: int) -> Diagnosis:
    """What the doctor says of a program."""
    return ddp_workbook.doctor(treated, patient, ranks=ranks)


def play_doctor() -> ddp_workbook.Play:
    """Controls for the patient, and for how many ranks it is seen on."""
    return ddp_workbook.play(
        lambda patient, number: seen(patient, number),
        lambda diagnosis, **_: diagnosis,
        ranks=None,
        stills=[{"patient": one} for one in "AIKC"],
        patient=ddp_workbook.choice("patient", tuple(PATIENTS), "H"),
        number=ddp_workbook.slider("ranks", (2, 3, 4), 4),
    )


def losses(last: bool) -> list[float]:
    """Four steps with a sharded model, its optimizer made last or before it was sharded."""
    setup()
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    early = torch.optim.SGD(model.parameters(), lr=0.1)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if last else early
    x, y = next(iter(batches()))
    found = []
    for _ in range(4):
        model.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    cleanup()
    return found


def lost_optimizer() -> ddp_workbook.TextTable:
    """The losses of rank 0 on one batch, with either optimizer."""
    rows = [
        (made, ", ".join(f"{loss:.2f}" for loss in ddp_workbook.launch(losses, last, ranks=2)[0]))
        for made, last in (("after fully_shard", True), ("before fully_shard", False))
    ]
    return ddp_workbook.text_table(pd.DataFrame(rows, columns=["optimizer made", "losses"]))
