"""A notebook cell as a file, and what runs it inside a rank."""

import ast
import hashlib
import os
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from manyranks.diagnostics.parsing import parse_source
from manyranks.files import temporary_folder, write_atomically
from manyranks.launcher.process_group import set_up
from manyranks.launcher.scripts import cache_lines, contain_os_exit, new_main

FOLDER = Path("work") / "cells"
VALUE = "__value_of_the_cell__"


@dataclass(frozen=True)
class Cell:
    """A worker that runs `text`, also saved at `path`. `bare` makes no process group.

    `words` are the cell's command line. Ranks get the text itself, because another kernel may
    overwrite the file meanwhile.
    """

    path: str
    text: str
    bare: bool = False
    words: tuple[str, ...] = ()

    def __call__(self) -> dict[str, str] | None:
        """In a rank: run the cell, see `run_cell`."""
        sys.argv = [self.path, *self.words]
        with contain_os_exit():
            return run_cell(self.path, self.bare, self.text)


def save_cell(header: str, source: str, bare: bool = False, words: tuple[str, ...] = ()) -> Cell:
    """Write the cell to a file below `work/` in the current folder, where the reader can open it.

    `header` (the magic's own line) becomes a comment, so that line numbers are those of the page.
    Equal cells share a file. If the folder is read-only, a temporary one is used.
    """
    text = f"# {header}\n{source}"
    name = f"cell_{hashlib.sha256(text.encode()).hexdigest()[:8]}.py"
    try:
        path = write_atomically(FOLDER.absolute() / name, text)
    except OSError:
        path = write_atomically(temporary_folder() / name, text)
    return Cell(str(path), text, bare, words)


def compile_cell(path: str | Path, text: str | None = None) -> types.CodeType:
    """Compile the cell so that the value of a last expression is kept; may raise SyntaxError.

    `text` is what runs and what errors show, whatever the file holds; without it, the file is read.
    """
    text = Path(path).read_text(encoding="utf-8") if text is None else text
    cache_lines(str(path), text)
    tree = parse_source(text, str(path))
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not text.rstrip().endswith(";"):
        last = tree.body[-1]
        name = ast.copy_location(ast.Name(VALUE, ast.Store()), last)
        tree.body[-1] = ast.copy_location(ast.Assign([name], last.value), last)
    return compile(tree, str(path), "exec")


def run_cell(path: str, bare: bool, text: str | None = None) -> dict[str, str] | None:
    """In a rank: run the cell; return its last value by MIME type, or None if it has none.

    rank, world_size, device, torch and dist are in scope. `bare` makes no process group. The cell
    is `__main__`, so a script that is pasted into it runs what stands under its guard.
    """
    module = new_main(path)
    device = set_up(bare)
    names = {
        "rank": int(os.environ["RANK"]),
        "world_size": int(os.environ["WORLD_SIZE"]),
        "device": device,
        "torch": torch,
        "dist": dist,
    }
    module.__dict__.update(names)
    exec(compile_cell(path, text), module.__dict__)
    return mime_bundle(module.__dict__.get(VALUE))


def mime_bundle(value: object) -> dict[str, str] | None:
    """How a notebook would show `value`: its repr, and its HTML if it has one."""
    if value is None:
        return None
    texts = {"text/plain": repr(value)}
    pandas = sys.modules.get("pandas")
    if pandas and isinstance(value, pandas.DataFrame):
        from ddp_workbook.page.display import frame_as_html  # late: few cells end in a table

        return texts | {"text/html": frame_as_html(value) or ""}
    html = getattr(value, "_repr_html_", None)
    if html is not None and not isinstance(value, type) and isinstance(markup := html(), str):
        texts["text/html"] = markup
    return texts
