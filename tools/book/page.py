"""One executed notebook as an HTML page."""

import base64
import os
import re
from collections.abc import Collection
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter

from ddp_workbook.page import pages
from manyranks.figures.slider import WIDGET

AWAY = r"(?:\.\./|further/)?"  # from a page's folder to another page's
PAGE_LINK = re.compile(rf"\[([^\]]*)\]\({AWAY}(\w+)\.ipynb(#[^)]*)?\)")
OUTPUT_LINK = re.compile(rf'(?s)<a href="{AWAY}(\w+)\.ipynb((?:#[^"]*)?"[^>]*>)(.*?)</a>')
# a file that is not in the book
ELSEWHERE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+((?!figs/)[^)]+)\)")
NOTE_ID = "note-of-the-book"
NOTE = (
    "This page was made by `make book`, to read. What it says about running cells, buttons and "
    "sliders is for JupyterLab (`make lab`); here, you choose one of some recorded pictures."
)
PICTURE = re.compile(r"!\[([^\]]*)\]\((?:\.\./)+(figs/[^)]+\.svg)\)")
PROGRESS = re.compile(r"progress\([^)]*\)\s*")  # what is solved says nothing about a book's reader


def title(notebook: nbformat.NotebookNode) -> str:
    """The notebook's first heading."""
    return notebook.cells[0].source.splitlines()[0].lstrip("# ")


def page(
    notebook: nbformat.NotebookNode, folder: Path, stems: Collection[str] | None = None
) -> str:
    """The notebook, from `folder`, as one HTML page that needs no other file and no network.

    Pictures are embedded, and formulas are plain text in the notebooks. The book has these pages,
    by default all; a link to another page becomes its text.
    """
    here = {path.stem for path in pages.all_pages()} if stems is None else {*stems}
    notebook.cells = [cell for cell in notebook.cells if not PROGRESS.fullmatch(cell.source)]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":  # links to other notebooks become links to pages
            cell.source = PAGE_LINK.sub(lambda match: of_page(match, here), cell.source)
            embed_pictures(cell, folder.parent)
            cell.source = ELSEWHERE.sub(r"\1 (`\2`)", cell.source)
        elif PROGRESS.fullmatch(cell.source.rpartition("\n")[2]):
            cell.outputs = []
        for output in cell.get("outputs", []):
            mend_output(output, here)
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
        lambda match: f"![{match[1]}](attachment:{Path(match[2]).name})", cell.source
    )


def of_page(link: re.Match, here: Collection[str]) -> str:
    """A text's link to a page of the book; its words alone if the book has no such page."""
    return f"[{link[1]}]({link[2]}.html{link[3] or ''})" if link[2] in here else link[1]


def mend_output(output: nbformat.NotebookNode, here: Collection[str]) -> None:
    """What a cell showed: no widget, and links to pages of the book."""
    data = output.get("data", {})
    data.pop(WIDGET, None)  # its pictures stand beside it as HTML

    def link(match: re.Match) -> str:
        known = match[1] in here
        return f'<a href="{match[1]}.html{match[2]}{match[3]}</a>' if known else match[3]

    if "text/html" in data:
        data["text/html"] = OUTPUT_LINK.sub(link, data["text/html"])


def mend_paths(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Show paths as in the reader's checkout: the page was executed in a copy, in `folder`."""
    to_the_checkout = os.path.relpath(pages.CHECKOUT, folder.resolve())
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        data = output.get("data", {})
        for kind, text in data.items():
            if isinstance(text, str):
                data[kind] = text.replace(f"{to_the_checkout}/", "../")
        if "text" in output:
            output.text = output.text.replace(f"{to_the_checkout}/", "../")
