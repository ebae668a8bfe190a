"""`%%ranks N`: the cell below it runs on N ranks."""

import traceback

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

        The cell sees rank, world_size, device, torch and dist, with the process group ready.
        """
        asked = parse_argstring(self.ranks, line)
        saved = save_cell(f"%%ranks {line}", cell, asked.bare)
        refuse_bad_syntax(saved)
        if not RanksMagics.said:
            RanksMagics.said = True
            print(FRESH)
        shown = run_ranks(Call(saved), asked.ranks, asked.timeout, quiet=True)
        return RankValues(shown) if any(value is not None for value in shown) else None


def refuse_bad_syntax(cell: Cell) -> None:
    """Raise LaunchRefused with the line that is not valid Python: once, not on every rank."""
    try:
        compile_cell(cell.path, cell.text)
    except SyntaxError as error:
        _, *lines = traceback.format_exception_only(error)
        message = (
            f"line {error.lineno} of this cell is not valid Python.\n{''.join(lines).rstrip()}"
        )
        raise LaunchRefused(message) from None
