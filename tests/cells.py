"""Cells in real kernels: one kept open, or one for a page of cells."""

import contextlib
import os
import queue
import re
import time
from pathlib import Path

import nbformat
import psutil
from IPython.core.inputtransformer2 import TransformerManager
from jupyter_client import KernelManager

from tools import book
from tools.set_up import ROOT

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def python_of(cell: str) -> str:
    """A cell as Python: without the line of a cell's magic, other lines for IPython as calls."""
    first, _, rest = cell.partition("\n")
    return TransformerManager().transform_cell(rest if first.startswith("%%") else cell)


class Kernel:
    """A kernel on ipc sockets, and the answers to its cells as text."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.manager = KernelManager(transport="ipc", ip=str(folder / "ipc"))
        environment = os.environ | {"PYTHONPATH": str(ROOT)}  # cells import from tests, too
        self.manager.start_kernel(cwd=str(folder), env=environment)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.pid = self.manager.provisioner.pid

    def send(self, code: str) -> str:
        return self.client.execute(code)

    def answer(self, request: str, patience: float = 60) -> str:
        """What the cell printed, and its error, once it is done.

        What is printed comes in as many messages as the kernel pleases, also within a line.
        """
        text = ""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            with contextlib.suppress(queue.Empty):
                message = self.client.get_iopub_msg(timeout=1)
                if message["parent_header"].get("msg_id") != request:
                    continue
                content = message["content"]
                text += content.get("text", "") + "\n".join(content.get("traceback", []))
                if content.get("execution_state") == "idle":
                    return text
        raise TimeoutError(text)

    def run(self, code: str) -> str:
        return self.answer(self.send(code))

    def below(self) -> list[int]:
        """All processes that the kernel has started, and theirs."""
        return [child.pid for child in psutil.Process(self.pid).children(recursive=True)]

    def close(self) -> None:
        self.client.stop_channels()
        with contextlib.suppress(Exception):
            self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


def run(folder: Path, *sources: str) -> list[str]:
    """Run the cells in one kernel; what each of them showed, as text."""
    cells = [nbformat.v4.new_code_cell(source) for source in ("%load_ext ddp_workbook", *sources)]
    path = folder / "page.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    page = book.execute(path).cells[1:]
    return [ANSI.sub("", "\n".join(map(text_of, cell.outputs))) for cell in page]


def text_of(output) -> str:
    """The plain text of one output of any kind."""
    if output.output_type == "stream":
        return output.text
    return (
        "\n".join(output.traceback) if output.output_type == "error" else output.data["text/plain"]
    )
