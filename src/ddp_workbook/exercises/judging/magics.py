"""`%%exercise name`: the cell below it is an attempt."""

from IPython.core.magic import Magics, cell_magic, magics_class

from ddp_workbook.exercises.judging.catalogue import find
from ddp_workbook.exercises.judging.judge import examine
from ddp_workbook.exercises.judging.verdict import Verdict


@magics_class
class ExerciseMagics(Magics):
    """The exercises' part of `%load_ext ddp_workbook`."""

    @cell_magic
    def exercise(self, line: str, cell: str) -> Verdict:
        """Save the cell as the reader's attempt, check it on real ranks, and show the verdict."""
        return examine(find(line.strip()), cell)
