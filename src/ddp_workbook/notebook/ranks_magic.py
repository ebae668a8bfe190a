"""`%%ranks N`: the cell below it runs on N ranks."""

import re
import shlex
import traceback

from IPython.core.error import UsageError
from IPython.core.inputtransformer2 import TransformerManager
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from ddp_workbook.errors import LaunchRefused
from ddp_workbook.launcher.calls import Call
from ddp_workbook.launcher.launch import run_ranks
from ddp_workbook.notebook.cells import Cell, compile_cell, save_cell
from ddp_workbook.notebook.display import RankValues

FRESH = (
    "A %%ranks cell runs in new processes, which end with it: it does not see variables of\n"
    "other cells, not even of earlier %%ranks cells. It has rank, world_size, device,\n"
    "torch and dist."
)
NO_MAGICS = (
    "line {line} of this cell is for IPython: {text}\n"
    "A %%ranks cell is plain Python, because it runs in processes without IPython. Put this line "
    "into a cell of its own."
)


@magics_class
class RanksMagics(Magics):
    """The magics that `%load_ext ddp_workbook` adds."""

    said = False

    @magic_arguments()
    @argument("ranks", metavar="N", type=int, help="how many ranks, 1 or more")
    @argument("--bare", action="store_true", help="make no process group: the cell does it itself")
    @argument("--timeout", type=float, default=60, metavar="SECONDS", help="time limit (60)")
    @cell_magic
    def ranks(self, line: str, cell: str) -> RankValues | None:
        """Run the cell on N ranks; show what they print, and their last values side by side.

        The cell sees rank, world_size, device, torch and dist, with the process group ready. It is
        the script `__main__`; what follows `--` is its command line:

            %%ranks 4 --bare -- --epochs 3
        """
        options, *words = re.split(r"(?:^|\s)--(?:\s+|$)", line, maxsplit=1)
        asked = parse_argstring(self.ranks, options)
        saved = save_cell(f"%%ranks {line}", cell, asked.bare, command_line(words))
        refuse_bad_syntax(saved)
        if not RanksMagics.said:
            RanksMagics.said = True
            print(FRESH)
        shown = run_ranks(Call(saved), asked.ranks, asked.timeout, quiet=True)
        return RankValues(shown) if any(value is not None for value in shown) else None


def command_line(words: list[str]) -> tuple[str, ...]:
    """The words of a command line, split as a shell does; UsageError for an open quote."""
    try:
        return tuple(word for text in words for word in shlex.split(text))
    except ValueError as error:
        raise UsageError(f"%%ranks … -- {words[0]}: {error}") from None


def refuse_bad_syntax(cell: Cell) -> None:
    """Raise LaunchRefused with the line that is not valid Python: once, not on every rank."""
    try:
        compile_cell(cell.path, cell.text)
    except SyntaxError as error:
        if magic := first_magic(cell.text):
            line, text = magic
            raise LaunchRefused(NO_MAGICS.format(line=line, text=text)) from None
        _, *lines = traceback.format_exception_only(error)
        message = (
            f"line {error.lineno} of this cell is not valid Python.\n{''.join(lines).rstrip()}"
        )
        raise LaunchRefused(message) from None


def first_magic(text: str) -> tuple[int, str] | None:
    """Number and text of the first line that only IPython understands; None without one."""
    lines = TransformerManager().transform_cell(text).splitlines()
    for number, (before, after) in enumerate(zip(text.splitlines(), lines, strict=False), start=1):
        if before != after and "get_ipython()" in after:
            return number, before.strip()
    return None
