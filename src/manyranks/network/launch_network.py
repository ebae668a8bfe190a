"""In the kernel: the network of one launch, as its ranks get it."""

import tempfile
from pathlib import Path

import torch

from manyranks.errors import LaunchRefused
from manyranks.network.emulation import FOLDER, NETWORK
from manyranks.network.links import Network, network

MEMORY = Path("/dev/shm")


class LaunchNetwork:
    """The environment `variables` of the ranks; none where no network is ordered."""

    def __init__(self, wanted: Network | None):
        self.folder = None
        self.variables: dict[str, str] = {}
        if wanted:
            place = MEMORY if MEMORY.is_dir() else None
            self.folder = tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True)
            self.variables = {NETWORK: wanted.packed(), FOLDER: self.folder.name}

    def end(self) -> None:
        """Remove what the ranks shared."""
        if self.folder:
            self.folder.cleanup()


def prepare_network(wanted: str | Network | None, ranks: int) -> LaunchNetwork:
    """Check an order, and prepare it. Raises LaunchRefused for one that cannot be met."""
    if wanted is None:
        return LaunchNetwork(None)
    found = network(wanted)
    found.check(ranks)
    if torch.cuda.device_count() >= ranks:
        raise LaunchRefused(
            "A network can be ordered for gloo only, and on this machine the ranks use NCCL, a GPU "
            "each. Set CUDA_VISIBLE_DEVICES to nothing before the kernel starts."
        )
    return LaunchNetwork(found)
