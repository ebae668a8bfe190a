"""The first line of a page, while its kernel imports PyTorch."""

import sys
from functools import partial
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import DisplayHandle


def show_loading(shell: InteractiveShell) -> None:
    """Say that PyTorch is being imported, and when the cell has run, that it is there."""
    if "torch" in sys.modules or not hasattr(shell, "kernel"):  # a terminal shows no later state
        return
    line = DisplayHandle()
    line.display({"text/plain": "Loading PyTorch: this takes a few seconds."}, raw=True)
    shell.events.register("post_run_cell", partial(_show_loaded, shell, line))


def _show_loaded(shell: InteractiveShell, line: DisplayHandle, _result: Any) -> None:
    """Once, for the cell that began to load it."""
    for callback in list(shell.events.callbacks["post_run_cell"]):
        if isinstance(callback, partial) and callback.func is _show_loaded:
            shell.events.unregister("post_run_cell", callback)
    torch = sys.modules.get("torch")
    text = f"PyTorch {torch.__version__} is ready." if torch else "PyTorch is not loaded."
    line.update({"text/plain": text}, raw=True)
