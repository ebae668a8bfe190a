"""The whole of it, in the process of a rank."""

from collections.abc import Callable

import torch

from manyranks.cpu_for_gpus.cuda import install_cuda
from manyranks.cpu_for_gpus.devices import install_devices
from manyranks.cpu_for_gpus.distributed import install_distributed
from manyranks.cpu_for_gpus.requests import REQUESTS

GPUS = [0]  # that programs in this process are told


def number() -> int:
    """How many GPUs the CPU takes the place of in this process; 0 where it is not installed."""
    return GPUS[0]


def install(gpus: int, report: Callable[[str, str], None]) -> bool:
    """Compute on the CPU what asks for a GPU, from now on; False, and nothing, where one is seen.

    Programs are told that there are `gpus`. `report` gets the kind of the first request, and a
    sentence that names its line.
    """
    if torch.cuda.is_available():
        return False
    REQUESTS.report = report
    if not GPUS[0]:
        install_devices()
        install_cuda(GPUS)
        install_distributed()
    GPUS[0] = gpus
    return True
