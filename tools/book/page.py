"""One executed notebook as an HTML page."""

import re
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter

from ddp_workbook.figures.stepper import WIDGET

ELSEWHERE = re.compile(r"\[([^\]]+)\]\(\.\./((?!figs/)[^)]+)\)")  # a file that is not in the book
ON_PAPER = """<style>@media print {
.frames { flex-wrap: wrap !important; overflow: visible !important }
}</style>"""
NOTE_ID = "note-of-the-book"
NOTE = (
    "This page was made by `make book`. In JupyterLab (`make lab`) its cells run, and sliders and "
    "progress bars work; here they are missing."
)


def title(notebook: nbformat.NotebookNode) -> str:
    """The notebook's first heading."""
    return notebook.cells[0].source.splitlines()[0].lstrip("# ")


def page(notebook: nbformat.NotebookNode, folder: Path) -> str:
    """The notebook, from `folder`, as one HTML page that needs no other file and no network.

    Pictures are embedded, and formulas are plain text in the notebooks.
    """
    for cell in notebook.cells:
        if cell.cell_type == "markdown":  # links to other notebooks become links to pages
            cell.source = re.sub(r"\.ipynb(#[^)]*)?\)", r".html\1)", cell.source)
            cell.source = ELSEWHERE.sub(r"\1 (`\2`)", cell.source)
            # nbconvert embeds only files below the given folder
            cell.source = cell.source.replace("../figs/", "figs/")
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET, None)  # its pictures stand beside it as HTML
            if "text/html" in output.get("data", {}):  # such as the table of contents
                shown = output.data["text/html"]
                output.data["text/html"] = re.sub(r'(<a href="\w+)\.ipynb"', r'\1.html"', shown)
    notebook.metadata.pop("widgets", None)  # for them a page would ask a server for a program
    note = nbformat.v4.new_markdown_cell(f"> {NOTE}\n\n{ON_PAPER}", id=NOTE_ID)
    notebook.cells.insert(1, note)
    exporter = HTMLExporter(
        embed_images=True, mathjax_url="", require_js_url="", jquery_url="", mermaid_js_url=""
    )
    about = {"path": str(folder.parent), "name": title(notebook)}
    return exporter.from_notebook_node(notebook, {"metadata": about})[0]
