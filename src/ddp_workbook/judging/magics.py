"""`%%exercise name`: the cell below it is an attempt."""

import re
import sys

from IPython.core.interactiveshell import ExecutionResult
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.display import clear_output, display

from ddp_workbook.judging import attempts
from ddp_workbook.judging.catalogue import find, names
from ddp_workbook.judging.judge import examine
from ddp_workbook.judging.reader import next_steps
from ddp_workbook.judging.verdict import NOT_YET, SOLVED, Verdict
from ddp_workbook.page.room_client.report import note_verdict

UNCHECKED = (
    "This cell defines {name}, and nothing was checked. To have it checked, add %%exercise {name} "
    "as the first line of the cell, and run it again."
)
DEFINITION = re.compile(r"(?m)^def (\w+)\(")


@magics_class
class ExerciseMagics(Magics):
    """The exercises' part of `%load_ext ddp_workbook`."""

    @cell_magic
    def exercise(self, line: str, cell: str) -> Verdict:
        """Save the cell as the reader's attempt, check it on real ranks, and show the verdict.

        One that is not a pass offers hints. A room that was joined hears of each attempt.
        """
        name = line.strip()
        on_a_page = hasattr(self.shell, "kernel")  # a terminal cannot take back what it shows
        verdict = examine(find(name), cell, display if on_a_page else None)
        if on_a_page:
            clear_output(wait=True)  # of the verdict that had no words yet
        if warning := attempts.warning(name):
            print(warning, file=sys.stderr)  # red on a page
        if verdict.kind == NOT_YET:
            verdict.help = next_steps(name, len(attempts.all_attempts(name)))
        if verdict.kind in (SOLVED, NOT_YET):
            advice = dict(verdict.rows).get("look at", "")
            if problem := note_verdict(name, verdict.kind, advice):
                print(problem)
        return verdict


def warn_if_unchecked(result: ExecutionResult) -> None:
    """After a cell: say so if it holds an answer, and no magic that would check it."""
    text = result.info.raw_cell or ""
    if not re.search(r"(?m)^%%", text):
        for name in sorted(set(DEFINITION.findall(text)) & set(names())):
            print(UNCHECKED.format(name=name), file=sys.stderr)
