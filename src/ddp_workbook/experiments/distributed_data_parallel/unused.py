"""A model with a part that steps leave out: the error, and what looking for such parts sends."""

import pandas as pd
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.digits import DigitsDataset
from ddp_workbook.experiments.distributed_data_parallel.messages import (
    WithASparePart,
    settings_table,
)


def steps_with_a_spare_part(**arguments) -> str:
    """A worker: three steps of a model that never uses `spare`; says what gradient `spare` has."""
    device, digits = setup(), DigitsDataset()
    images, labels = digits.images[:64].to(device), digits.labels[:64].to(device)
    model = WithASparePart().to(device)
    ddp = DistributedDataParallel(model, **arguments)
    for step in (1, 2, 3):
        F.cross_entropy(ddp(images), labels).backward()
        print("step", step, "is done")
    dist.barrier()
    return f"the gradient of spare is {model.spare.weight.grad}"


def sent_with_a_spare_part() -> pd.DataFrame:
    """The bytes of each message of rank 0 in three steps, with each argument that helps here."""
    looking: dict[str, object] = {"find_unused_parameters": True}
    small = looking | {"bucket_cap_mb": 0.001}  # so that spare's bias has a bucket of its own
    skipping = small | {"skip_all_reduce_unused_params": True}
    settings: list[dict] = [looking, {"static_graph": True}, small, skipping]
    return settings_table(WithASparePart, settings, ["step 1", "step 2", "step 3"])
