"""`own_solution`: the reader's solution of an exercise, as a worker for another experiment."""

import runpy
from pathlib import Path
from typing import Any

from ddp_workbook.judging.attempts import latest_passed
from ddp_workbook.judging.catalogue import find
from ddp_workbook.judging.check import exercise_module
from manyranks.launcher.process_group import set_up


class OwnSolution:
    """A worker: joins the group, then calls the function in the file at `path`.

    Without a file it calls the workbook's own solution.
    """

    def __init__(self, name: str, path: Path | None):
        self.name, self.path = name, path

    def __call__(self, *args: Any) -> Any:
        """Run in a rank."""
        set_up(bare=False)
        if self.path is None:
            return getattr(exercise_module(self.name), self.name)(*args)
        return runpy.run_path(str(self.path))[self.name](*args)

    def __repr__(self) -> str:
        whose = "your" if self.path else "the workbook's (yours is not solved yet):"
        return f"{whose} {self.name}"


def own_solution(name: str) -> OwnSolution:
    """The reader's solved attempt at the exercise `name`, for `launch` and `record_collectives`.

    Until there is one, the workbook's own solution. Raises UnknownExercise.
    """
    return OwnSolution(find(name).name, latest_passed(name))
