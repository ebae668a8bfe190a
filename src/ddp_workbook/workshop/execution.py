"""Executes notebooks, in copies of the folders that they refer to."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from ddp_workbook.page import pages


def copy_layout(folder: Path) -> Path:
    """Copy what notebooks refer to by a relative path; return the folder of the copied notebooks.

    They save cells under work/, which must not appear in the checkout.
    """
    ignore = shutil.ignore_patterns(".ipynb_checkpoints", "work")
    for original in (pages.FOLDER, pages.CHECKOUT / "figs"):
        if original.is_dir():
            shutil.copytree(original, folder / original.name, ignore=ignore)
    return folder / "notebooks"


def begin_with(path: Path, code: str) -> None:
    """Put a cell with this code before the first cell of a (copied) notebook."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(code))
    nbformat.write(notebook, path)


def execute(
    path: Path, cell_timeout: float = 300, env: Mapping[str, str] | None = None
) -> nbformat.NotebookNode:
    """Run the notebook at `path` in its folder; return it with outputs, errors included.

    Its kernel has the environment variables of this process, or `env`. Raises KeyboardInterrupt
    after Ctrl-C or SIGTERM, when the kernel has ended.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="kernel-") as sockets:
        # On every page ipykernel would warn about TCP without encryption; a relative ip would be
        # looked for both in the kernel's folder and in ours
        manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{sockets}/zmq")
        client = NotebookClient(
            notebook,
            km=manager,
            timeout=cell_timeout,
            allow_errors=True,
            coalesce_streams=True,
            resources={"metadata": {"path": os.fspath(path.parent)}},
        )
        own = {} if env is None else {"env": dict(env)}
        try:
            client.execute(cleanup_kc=True, **own)
        except Exception:
            if was_stopped(client):
                raise KeyboardInterrupt from None
            raise
        if was_stopped(client):
            raise KeyboardInterrupt
        return notebook


def was_stopped(client: NotebookClient) -> bool:
    """Whether Ctrl-C or SIGTERM has come: nbclient's handler ends the kernel, and notes just this.

    What execution comes to is chance then: an error of any kind, or a notebook like a whole one.
    """
    return hasattr(client, "_async_cleanup_kernel_future")


def errors(notebook: nbformat.NotebookNode) -> list[str]:
    """What went wrong: a cell that failed, or one that was meant to fail and did not."""
    problems = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        exceptions = [output for output in cell.outputs if output.output_type == "error"]
        must_raise = "raises-exception" in cell.metadata.get("tags", [])
        if exceptions and not must_raise:
            problems.append(f"cell {cell.id}: {exceptions[0].ename}: {exceptions[0].evalue}")
        elif must_raise and not exceptions:
            problems.append(f"cell {cell.id} is tagged raises-exception and raised nothing")
    return problems
