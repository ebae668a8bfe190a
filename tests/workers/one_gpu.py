"""Workers for the tests of a single GPU: what a rank finds when it sets itself up."""

import torch
import torch.distributed as dist

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from manyranks.launcher import process_group


def of_chapters() -> tuple[str, str, list[float]]:
    """Device, backend and an all-reduced tensor, as the chapters' `setup` makes them."""
    device = setup()
    total = torch.full((2,), 3.0, device=device)
    dist.all_reduce(total)
    found = str(device), dist.get_backend(), total.tolist()
    cleanup()
    return found


def of_cells() -> tuple[str, list[float], list[float]]:
    """Device, and tensors that were all-reduced there and on the CPU, as in a `%%ranks` cell."""
    device = process_group.set_up(bare=False)
    there, here = torch.ones(2, device=device), torch.ones(2)
    dist.all_reduce(there)
    dist.all_reduce(here)
    return str(device), there.tolist(), here.tolist()


def on_the_device() -> torch.Tensor:
    """A tensor that a rank returns from its device."""
    return torch.arange(3.0, device=setup())


def sees_a_gpu():
    return torch.cuda.is_available()
