"""Advice for a kernel in which a page's first cells have not run, such as after a restart.

The workbook's environment loads this extension into every kernel (tools/set_up.py writes its line
in etc/ipython). It imports nothing heavy; `%load_ext ddp_workbook` replaces its magics.
"""

from types import TracebackType

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from ddp_workbook.page.misplaced_magic import warn_misplaced_magic

ADVICE = (
    "This kernel knows nothing of the cells above: it was restarted, or they were not run. In the "
    "menu, choose Run > Run All Above Selected Cell, and run this cell again."
)
UNWRITTEN = (
    "A cell of this page writes that file. Run the one that begins with %%writefile, and then this "
    "cell again."
)
MAGICS = ("ranks", "exercise")
PACKAGES = ("ddp_workbook", "manyranks")
# Called by a reader, not by a program
READER_COMMANDS = ("hint", "solution", "progress", "predict", "reveal")


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Give the page's own magics, and unknown names, an answer that says what to do."""
    for name in MAGICS:
        shell.register_magic_function(_refuse, "cell", name)
    shell.input_transformers_cleanup.append(warn_misplaced_magic)
    shell.set_custom_exc((NameError, ModuleNotFoundError), _explain)


def _refuse(line: str, cell: str) -> None:
    """Stand for a magic of the extension that is not loaded."""
    raise UsageError(ADVICE)


def _explain(
    shell: InteractiveShell,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType,
    tb_offset: int | None = None,
) -> None:
    """Show the error as usual, with advice as its last line if a cell above has not run.

    After a page's imports, an unknown name is the reader's own. Where a reader asks for a hint, the
    advice stands alone.
    """
    if isinstance(error, NameError) and error.name in READER_COMMANDS:
        return shell.show_usage_error(UsageError(f"{error.name} is not there yet. {ADVICE}"))
    if isinstance(error, ModuleNotFoundError):
        if (error.name or "").partition(".")[0] == "work":
            error.add_note(UNWRITTEN)
    elif not any(belongs_here(value) for value in list(shell.user_ns.values())):
        error.add_note(ADVICE)
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)


def belongs_here(value: object) -> bool:
    """Whether it is a function, class or module of the course or of its workbench."""
    name = getattr(value, "__module__", None) or getattr(value, "__name__", None)
    return isinstance(name, str) and name.partition(".")[0] in PACKAGES
