"""In the kernel: the network of one launch, as its ranks get it."""

import tempfile
from pathlib import Path

from manyranks.network.emulation import FOLDER, NETWORK
from manyranks.network.links import Network, network

SHARED_MEMORY = Path("/dev/shm")


class LaunchNetwork:
    """The environment `variables` of the ranks; none where no network is ordered."""

    def __init__(self, emulated: Network | None):
        self.folder = None
        self.variables: dict[str, str] = {}
        if emulated:
            parent = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
            self.folder = tempfile.TemporaryDirectory(dir=parent, ignore_cleanup_errors=True)
            self.variables = {NETWORK: emulated.to_json(), FOLDER: self.folder.name}

    def end(self) -> None:
        """Remove what the ranks shared."""
        if self.folder:
            self.folder.cleanup()


def prepare_network(order: str | Network | None, ranks: int) -> LaunchNetwork:
    """Check an order, and prepare it. Raises LaunchRefused for one that cannot be met."""
    if order is None:
        return LaunchNetwork(None)
    emulated = network(order)
    emulated.check(ranks)
    return LaunchNetwork(emulated)
