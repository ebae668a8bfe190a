"""How much of a script is looked at: most of a small one, and seconds of a large one."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

EVERY = 4  # steps, after which the ranks decide together whether to go on
_open, _link = os.open, os.link  # later both are redirected


@dataclass(frozen=True)
class Extent:
    """How much is looked at before the script is ended."""

    batches: int = 64  # of each pass over a loader
    passes: int = 12  # over a loader
    steps: int = 384  # of each optimizer
    seconds: float = 20.0  # from the first step on


class Budget:
    """Tells all ranks after the same step that enough was seen.

    The rank that comes first to a step decides for all: who leaves earlier than the others would
    let them wait in a collective.
    """

    def __init__(self, folder: Path, extent: Extent):
        self.folder, self.extent, self.begin = folder, extent, 0.0

    def is_used_up(self, steps: int, optimizers: int) -> bool:
        """Whether the script is to end after so many steps of so many optimizers."""
        self.begin = self.begin or time.monotonic()
        if steps >= self.extent.steps * optimizers:
            return True
        return steps % EVERY == 0 and self._decide(f"step-{steps}")

    def _decide(self, name: str) -> bool:
        """What the first rank to ask has decided."""
        path, own = self.folder / name, self.folder / f"{name}-{os.getpid()}"
        over = time.monotonic() - self.begin > self.extent.seconds
        file = _open(own, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        os.write(file, b"enough" if over else b"go on")
        os.close(file)
        with contextlib.suppress(FileExistsError):
            _link(own, path)  # appears with its content, or was there before
        return path.read_text() == "enough"
