"""One executed notebook as an HTML page."""

import base64
import os
import re
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter

from ddp_workbook.figures.slider import WIDGET
from ddp_workbook.notebook import pages

ELSEWHERE = re.compile(r"\[([^\]]+)\]\(\.\./((?!figs/)[^)]+)\)")  # a file that is not in the book
NOTE_ID = "note-of-the-book"
NOTE = (
    "This page was made by `make book`, to read. What it says about running cells, buttons and "
    "sliders is for JupyterLab (`make lab`); here, the pictures of a slider stand in a row."
)
PICTURE = re.compile(r"!\[([^\]]*)\]\(\.\./(figs/[^)]+\.svg)\)")
PROGRESS = re.compile(r"progress\([^)]*\)\s*")  # what is solved says nothing about a book's reader


def title(notebook: nbformat.NotebookNode) -> str:
    """The notebook's first heading."""
    return notebook.cells[0].source.splitlines()[0].lstrip("# ")


def page(notebook: nbformat.NotebookNode, folder: Path) -> str:
    """The notebook, from `folder`, as one HTML page that needs no other file and no network.

    Pictures are embedded, and formulas are plain text in the notebooks.
    """
    notebook.cells = [cell for cell in notebook.cells if not PROGRESS.fullmatch(cell.source)]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":  # links to other notebooks become links to pages
            cell.source = re.sub(r"\.ipynb(#[^)]*)?\)", r".html\1)", cell.source)
            embed_pictures(cell, folder.parent)
            cell.source = ELSEWHERE.sub(r"\1 (`\2`)", cell.source)
        elif PROGRESS.fullmatch(cell.source.rpartition("\n")[2]):
            cell.outputs = []
        for output in cell.get("outputs", []):
            mend_output(output, folder)
    notebook.metadata.pop("widgets", None)  # for them a page would ask a server for a program
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell(f"> {NOTE}", id=NOTE_ID))
    exporter = HTMLExporter(mathjax_url="", require_js_url="", jquery_url="", mermaid_js_url="")
    about = {"name": title(notebook)}
    return exporter.from_notebook_node(notebook, {"metadata": about})[0]


def embed_pictures(cell: nbformat.NotebookNode, checkout: Path) -> None:
    """Attach the files of a text's pictures to it.

    nbconvert's own embed_images empties tags in a text: <kbd>Enter</kbd> becomes <kbd></kbd>Enter.
    """
    for _, file in PICTURE.findall(cell.source):
        data = base64.b64encode((checkout / file).read_bytes()).decode()
        cell.setdefault("attachments", {})[Path(file).name] = {"image/svg+xml": data}
    cell.source = PICTURE.sub(
        lambda found: f"![{found[1]}](attachment:{Path(found[2]).name})", cell.source
    )


def mend_output(output: nbformat.NotebookNode, folder: Path) -> None:
    """What a cell showed: no widget, links to pages, and paths as in the reader's checkout."""
    data = output.get("data", {})
    data.pop(WIDGET, None)  # its pictures stand beside it as HTML
    if "text/html" in data:
        data["text/html"] = re.sub(r'(<a href="\w+)\.ipynb"', r'\1.html"', data["text/html"])
    # The pages were executed in a copy of their folder.
    to_the_checkout = os.path.relpath(pages.CHECKOUT, folder.resolve())
    for kind, text in data.items():
        if isinstance(text, str):
            data[kind] = text.replace(f"{to_the_checkout}/", "../")
    if "text" in output:
        output.text = output.text.replace(f"{to_the_checkout}/", "../")
