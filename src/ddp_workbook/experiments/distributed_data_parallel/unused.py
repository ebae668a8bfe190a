"""A model with a part that steps leave out: the error, and what looking for such parts costs."""

import pandas as pd
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.digits import DigitsDataset, DigitsMLP
from ddp_workbook.experiments.distributed_data_parallel.messages import (
    WithASparePart,
    settings_table,
)
from ddp_workbook.launcher.launch import launch
from ddp_workbook.recording.timing import compare, summary, time_step

DEFAULTS = "the defaults"


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


def cost_of_looking(rounds: int = 5) -> pd.DataFrame:
    """Milliseconds of forward and backward, with and without looking for unused parameters.

    All parameters are used. The model is deep and narrow: a step has little to compute, so what the
    search costs shows. `ratio` compares with the defaults.
    """
    times = launch(timed_searches, rounds, ranks=2)[0]
    table = summary(times, baseline=DEFAULTS)
    return pd.DataFrame(
        {
            "arguments": table["candidate"],
            "median ms": (1e3 * table["median"]).map("{:.1f}".format),
            "ratio": table["ratio"].map("{:.2f}".format),
        }
    )


def timed_searches(rounds: int) -> pd.DataFrame:
    """A worker: three kinds of DDP in turns, each for ten steps."""
    device = setup()
    images = DigitsDataset().images[:64].to(device)

    def steps_of(**argument):
        ddp = DistributedDataParallel(DigitsMLP(depth=32).to(device), **argument)

        def step():
            ddp(images).logsumexp(dim=1).mean().backward()

        return lambda: time_step(step, repeats=10)

    names = "find_unused_parameters", "static_graph"
    kinds = {f"{name}=True": steps_of(**{name: True}) for name in names}
    times = compare({DEFAULTS: steps_of()} | kinds, rounds)
    dist.barrier()
    return times
