"""`%%ranks N`: the cell below it runs on N ranks."""

import re
import shlex
import traceback
from argparse import Namespace
from dataclasses import replace
from typing import Any

from IPython.core.error import UsageError
from IPython.core.inputtransformer2 import TransformerManager
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from ddp_workbook.page.cells import Cell, compile_cell, save_cell
from ddp_workbook.page.display import RankValues
from ddp_workbook.page.predictions import reveal
from manyranks.diagnostics.parsing import first_calls
from manyranks.errors import LaunchRefused, RankFailed
from manyranks.launcher.calls import Call
from manyranks.launcher.launch import run_ranks

FRESH = "A %%ranks cell is saved as a file, and fresh processes run it."
NO_MAGICS = (
    "these lines of the cell are for IPython:\n{lines}\n"
    "A %%ranks cell is plain Python, because it runs in processes without IPython. Put such lines "
    "into a cell of their own."
)
MAKES, LEAVES, ASKS = "init_process_group", "destroy_process_group", "is_initialized"
MAKES_ITS_GROUP = (
    "This cell makes its process group itself (line {line}), so %%ranks made none, as with --bare."
)
SCRIPT_ARGUMENTS_HINT = (
    "%%ranks takes --bare, --timeout, --reveal, --network and --no-as-if-gpus. Arguments for the "
    "program in the cell go after `--`: %%ranks {ranks} -- {words}"
)


@magics_class
class RanksMagics(Magics):
    """The magics that `%load_ext ddp_workbook` adds."""

    notice_shown = False

    @magic_arguments()
    @argument("ranks", metavar="N", type=int, help="how many ranks, 1 or more")
    @argument("--bare", action="store_true", help="make no process group: the cell does it itself")
    @argument("--timeout", type=float, default=60, metavar="SECONDS", help="time limit (60)")
    @argument("--no-as-if-gpus", action="store_true", help="fail where a GPU is asked for")
    @argument("--reveal", metavar="NAME", help="a question whose answer the cell shows")
    @argument("--network", nargs="+", metavar="ORDER", help='"1 Gbit/s, 0.5 ms": see `launch`')
    @cell_magic
    def ranks(self, line: str, cell: str) -> RankValues | None:
        """Run the cell on N ranks; show what they print, and their last values side by side.

        The cell sees rank, world_size, device, torch and dist, with the process group ready unless
        it makes one itself. It is the script `__main__`; what follows `--` is its command line:

            %%ranks 4 -- --epochs 3
        """
        own_words, *words = re.split(r"(?:^|\s)--(?:\s+|$)", line, maxsplit=1)
        options = options_of(self.ranks, own_words)
        cell_file = save_cell(f"%%ranks {line}", cell, options.bare, command_line(words))
        refuse_bad_syntax(cell_file)
        if not options.bare and (own := makes_its_group(cell_file.text)):
            print(MAKES_ITS_GROUP.format(line=own))
            cell_file = replace(cell_file, bare=True)
        if not RanksMagics.notice_shown:
            RanksMagics.notice_shown = True
            print(FRESH)
        if not options.reveal:
            return self._values(cell_file, options)
        try:
            reveal(options.reveal, self._values(cell_file, options))
        except RankFailed:  # which may be the answer
            reveal(options.reveal)
            raise
        return None

    @staticmethod
    def _values(worker: Cell, options: Namespace) -> RankValues | None:
        network = " ".join(options.network).strip("\"'") if options.network else None
        values = run_ranks(
            Call(worker),
            options.ranks,
            options.timeout,
            quiet=True,
            network=network,
            as_if_gpus=not options.no_as_if_gpus,
        )
        return RankValues(values) if any(value is not None for value in values) else None


def options_of(magic: Any, options: str) -> Namespace:
    """The magic's own options; UsageError says where those of the cell's program stand."""
    try:
        return parse_argstring(magic, options)
    except UsageError as error:
        first, _, rest = options.strip().partition(" ")
        if "unrecognized arguments" in str(error) and first.isdigit():
            words = re.sub(r"--bare\b|--(?:timeout|reveal)[ =]\S+", "", rest).strip()
            hint = SCRIPT_ARGUMENTS_HINT.format(ranks=first, words=words)
            raise UsageError(f"{error}\n{hint}") from None
        raise


def makes_its_group(text: str) -> int:
    """The line in which the cell makes the default group, as a pasted script does; 0 if none.

    A cell that asks for a group, or leaves one before, knows of the one that %%ranks makes.
    """
    lines = first_calls(text, (MAKES, LEAVES, ASKS))
    line = lines.get(MAKES, 0)
    return line if lines.get(LEAVES, line + 1) > line and ASKS not in lines else 0


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
        if magics := lines_for_ipython(cell.text):
            raise LaunchRefused(NO_MAGICS.format(lines="\n".join(magics))) from None
        _, *lines = traceback.format_exception_only(error)
        message = (
            f"line {error.lineno} of this cell is not valid Python.\n{''.join(lines).rstrip()}"
        )
        raise LaunchRefused(message) from None


def lines_for_ipython(text: str) -> list[str]:
    """Number and text of each line that only IPython understands."""
    lines = TransformerManager().transform_cell(text).splitlines()
    pairs = enumerate(zip(text.splitlines(), lines, strict=False), start=1)
    return [
        f"  line {number}   {before.strip()}"
        for number, (before, after) in pairs
        if before != after and "get_ipython()" in after
    ]
