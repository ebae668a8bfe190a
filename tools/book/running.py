"""Executes pages for the book, and keeps each of them until something that it uses has changed.

A page's key is made of the page, all modules that it imports, the data that these name, and the
machine with its PyTorch. A build that was interrupted continues with the first page it had not run.
"""

import hashlib
import os
import platform
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

import nbformat

from ddp_workbook.page import pages
from ddp_workbook.page.machine import machine_name
from ddp_workbook.page.play import RECORD
from ddp_workbook.workshop.execution import copy_layout, errors, execute
from manyranks.files import write_atomically
from tools.book.page import mend_paths
from tools.check import Graph
from tools.set_up import ROOT

CACHE = ROOT / "build" / "pages"
PACKAGE_INIT = "src/ddp_workbook/__init__.py"  # by the first cell of each page
DATA = ("data", "figs", "job_scripts")  # whose files a page uses if a module names them


def execute_page(path: Path) -> nbformat.NotebookNode:
    """The page with its outputs; players show their stills, because a book has no kernel."""
    notebook = execute(path, env=os.environ | {RECORD: "1"})
    further = path.parent.name == pages.FURTHER_FOLDER
    mend_paths(notebook, path.parents[1] if further else path.parent)
    return notebook


def run_all(
    paths: Sequence[Path], failed: list[str], cache: Path = CACHE, fresh: bool = False
) -> Iterator[tuple[str, nbformat.NotebookNode]]:
    """These pages with their outputs, one after another; their errors are added to `failed`.

    A page whose key is that of its copy in `cache` is not executed, unless `fresh`. A page with
    errors is not kept.
    """
    machine, graph = machine_name(), Graph()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        copies = copy_layout(Path(folder))
        for path in paths:
            place, own_key = cache / path.name, key_of(path, graph, machine)
            if not fresh and (cached := cached_page(place, own_key)):
                print(f"  {path.stem}: unchanged", flush=True)
                yield path.stem, cached
                continue
            start = time.monotonic()
            notebook = execute_page(copies / path.relative_to(pages.FOLDER))
            notebook.metadata["book"] = {
                "key": own_key,
                "date": f"{date.today()}",
                "machine": machine,
            }
            if wrong := errors(notebook):
                failed += [f"{path.name}: {error}" for error in wrong]
            else:
                write_atomically(place, nbformat.writes(notebook))
            print(f"  {path.stem}: {time.monotonic() - start:.0f} s", flush=True)
            yield path.stem, notebook


def cached_page(place: Path, key: str) -> nbformat.NotebookNode | None:
    """The page that was executed with this key; None if there is none that can be read."""
    try:
        notebook = nbformat.read(place, as_version=4)
    except (OSError, ValueError):
        return None
    return notebook if notebook.metadata.get("book", {}).get("key") == key else None


def key_of(path: Path, graph: Graph, machine: str) -> str:
    """What the page's outputs depend on, as a hash."""
    paths = graph.needs([path.relative_to(ROOT).as_posix(), PACKAGE_INIT]) & graph.texts.keys()
    texts = [graph.texts[name] for name in paths]
    data = [file for folder in DATA for file in (ROOT / folder).rglob("*") if file.is_file()]
    paths |= {
        file.relative_to(ROOT).as_posix()
        for file in data
        if any(file.name in text for text in texts)
    }
    digest = hashlib.sha256(f"{machine} {platform.python_version()}".encode())
    for name in sorted(paths):
        digest.update(name.encode() + (ROOT / name).read_bytes())
    return digest.hexdigest()
