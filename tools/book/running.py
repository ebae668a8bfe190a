"""Executes pages for the book, and keeps each of them until something that it uses has changed.

A page's key is made of the page, all modules that it imports, the data that these name, and the
machine with its PyTorch. A build that was interrupted continues with the first page it had not run.
"""

import hashlib
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import nbformat

from ddp_workbook.page import pages
from ddp_workbook.page.machine import machine_name
from ddp_workbook.page.play import RECORD
from ddp_workbook.workshop.execution import copy_layout, errors, execute
from manyranks.files import write_atomically
from tools.book.page import mend_paths
from tools.book.site import edition
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


@dataclass(frozen=True)
class Run:
    """A page of the book: its notebook, and what was wrong if it failed.

    `earlier` is what was executed without errors the last time; None if nothing failed, or if there
    is no such notebook.
    """

    notebook: nbformat.NotebookNode
    errors: list[str] = field(default_factory=list)
    earlier: nbformat.NotebookNode | None = None


def run_all(
    paths: Sequence[Path], cache: Path = CACHE, fresh: bool = False
) -> Iterator[tuple[str, Run]]:
    """These pages with their outputs, one after another, each with its stem.

    A page whose key is that of its copy in `cache` is not executed, unless `fresh`. A page with
    errors is not kept, and the copy of its earlier edition stays.
    """
    machine, graph = machine_name(), Graph()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        copies = copy_layout(Path(folder))
        for path in paths:
            place, own_key = cache / path.name, key_of(path, graph, machine)
            if not fresh and (cached := cached_page(place, own_key)):
                print(f"  {path.stem}: unchanged", flush=True)
                yield path.stem, Run(cached)
                continue
            start = time.monotonic()
            notebook = execute_page(copies / path.relative_to(pages.FOLDER))
            notebook.metadata["book"] = {
                "key": own_key,
                "date": f"{date.today()}",
                "machine": machine,
                "edition": edition(),
            }
            print(f"  {path.stem}: {time.monotonic() - start:.0f} s", flush=True)
            if wrong := errors(notebook):
                earlier = cached_page(place)
                if earlier:
                    earlier.metadata["book"]["old"] = True
                yield path.stem, Run(notebook, wrong, earlier)
            else:
                write_atomically(place, nbformat.writes(notebook))
                yield path.stem, Run(notebook)


def cached_page(place: Path, key: str = "") -> nbformat.NotebookNode | None:
    """The page that was executed with this key, or with any; None if none can be read."""
    try:
        notebook = nbformat.read(place, as_version=4)
    except (OSError, ValueError):
        return None
    kept = notebook.metadata.get("book", {}).get("key")
    return notebook if kept and key in ("", kept) else None


def key_of(path: Path, graph: Graph, machine: str) -> str:
    """What the page's outputs depend on, as a hash."""
    digest = hashlib.sha256(f"{machine} {platform.python_version()}".encode())
    for name in sorted(files_of(path, graph)):
        digest.update(name.encode() + (ROOT / name).read_bytes())
    return digest.hexdigest()


def files_of(path: Path, graph: Graph) -> set[str]:
    """The page, the modules that it imports, and the data that these name."""
    paths = graph.needs([path.relative_to(ROOT).as_posix(), PACKAGE_INIT]) & graph.texts.keys()
    texts = [graph.texts[name] for name in paths]
    data = [file for folder in DATA for file in (ROOT / folder).rglob("*") if file.is_file()]
    return paths | {
        file.relative_to(ROOT).as_posix()
        for file in data
        if any(file.name in text for text in texts)
    }


def changed_pages(paths: Sequence[Path], since: str) -> list[Path]:
    """Those whose outputs depend on a file that has changed since this commit.

    If there are none, the first page, so that there is something to look at.
    """
    line = ["git", "-C", str(ROOT), "diff", "--name-only", f"{since}...HEAD"]
    changed = set(subprocess.run(line, capture_output=True, text=True, check=True).stdout.split())
    graph = Graph()
    return [path for path in paths if files_of(path, graph) & changed] or [paths[0]]
