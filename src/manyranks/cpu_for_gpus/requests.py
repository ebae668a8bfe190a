"""Where a program asks for a GPU: the first line that does, told once."""

import sys
from collections.abc import Callable

from manyranks.diagnostics.user_code import is_cell, is_own, short

GPU, MEMORY, SEED, COUNT = "gpu", "memory", "seed", "count"
SENTENCES = {
    GPU: "{place} asks for a GPU: computed on the CPU here; times are a CPU's.",
    MEMORY: "{place} asks how much memory of a GPU is taken: 0 here.",
    SEED: "{place} seeds a GPU's own generator: the CPU's, which draws here, keeps its seed.",
    COUNT: "{place} wants more GPUs than there are ranks, and each rank stands for one.",
}


class Requests:
    """The first request of each kind, `file.py:12`, passed on to `report` as it is made."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        self.report: Callable[[str, str], None] = lambda kind, sentence: None

    @property
    def of_a_gpu(self) -> bool:
        """True once the program has used a GPU."""
        return GPU in self.places

    def note(self, kind: str = GPU) -> None:
        """A request is being made by the innermost of the reader's own frames, if there is one."""
        if kind in self.places:
            return
        frame = sys._getframe(1)
        while frame is not None and not is_own(frame.f_code.co_filename):
            frame = frame.f_back  # type: ignore[assignment]
        if frame is not None:
            file, line = frame.f_code.co_filename, frame.f_lineno
            place = f"line {line} of the cell" if is_cell(file) else f"{short(file)}:{line}"
            self.places[kind] = place
            self.report(kind, SENTENCES[kind].format(place=self.places[kind]))


REQUESTS = Requests()
