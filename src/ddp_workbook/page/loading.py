"""The first line of a page, while its kernel imports PyTorch."""

import sys

from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from IPython.display import DisplayHandle


def show_loading(shell: InteractiveShell) -> None:
    """Say that PyTorch is being imported, and when the cell has run, that it is there."""
    if "torch" in sys.modules or not hasattr(shell, "kernel"):  # a terminal shows no later state
        return
    line = DisplayHandle()
    line.display({"text/plain": "Loading PyTorch: this takes a few seconds."}, raw=True)

    def show_loaded(_result: ExecutionResult) -> None:
        shell.events.unregister("post_run_cell", show_loaded)  # once, after the cell that loads it
        torch = sys.modules.get("torch")
        text = f"PyTorch {torch.__version__} is ready." if torch else "PyTorch is not loaded."
        line.update({"text/plain": text}, raw=True)

    shell.events.register("post_run_cell", show_loaded)
