"""Execute every notebook and build the HTML to read, in build/book: `make book`.

The pages need no network: pictures are embedded, and formulas are plain text in the notebooks.
Sliders and progress bars live in JupyterLab only; the pages say so.
"""

import html
import re
import shutil
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter

from ddp_workbook.instructor.execution import copy_layout, errors, execute
from ddp_workbook.notebook.pages import all_pages, in_order
from tools.set_up import ROOT

ON_PAPER = """<style>@media print {
.frames { flex-wrap: wrap !important; overflow: visible !important }
}</style>"""
NOTE = (
    "This page was made by `make book`. In JupyterLab (`make lab`) its cells run, and sliders and "
    "progress bars work; here they are missing."
)


NOTEBOOKS = all_pages()


def title(notebook: nbformat.NotebookNode) -> str:
    """The notebook's first heading."""
    return notebook.cells[0].source.splitlines()[0].lstrip("# ")


def page(notebook: nbformat.NotebookNode, folder: Path) -> str:
    """The notebook, from `folder`, as one HTML page that needs no other file and no network."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":  # links to other notebooks become links to pages
            cell.source = cell.source.replace(".ipynb)", ".html)")
            # nbconvert embeds only files below the given folder
            cell.source = cell.source.replace("../figs/", "figs/")
        for output in cell.get("outputs", []):  # such as the table of contents
            if "text/html" in output.get("data", {}):
                shown = output.data["text/html"]
                output.data["text/html"] = re.sub(r'(<a href="\w+)\.ipynb"', r'\1.html"', shown)
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell(f"> {NOTE}\n\n{ON_PAPER}"))
    exporter = HTMLExporter(
        embed_images=True, mathjax_url="", require_js_url="", jquery_url="", mermaid_js_url=""
    )
    about = {"path": str(folder.parent), "name": title(notebook)}
    return exporter.from_notebook_node(notebook, {"metadata": about})[0]


def index(titles: dict[str, str]) -> str:
    """The page that links to the others; further pages stand below their chapter's."""
    items = ""
    for _, stems in groupby(sorted(titles, key=in_order), key=lambda stem: stem[:2]):
        links = [f'<a href="{stem}.html">{html.escape(titles[stem])}</a>' for stem in stems]
        further = "".join(f"<li>{link}</li>\n" for link in links[1:])
        items += f"<li>{links[0]}" + (f"\n<ul>\n{further}</ul>" if further else "") + "</li>\n"
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        "<title>The Distributed PyTorch Workbook</title>\n"
        '<body style="font: 1.1rem/1.6 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto">'
        f"\n<h1>The Distributed PyTorch Workbook</h1>\n<ul>\n{items}</ul>\n</body>\n</html>\n"
    )


def main() -> int:
    """Build all pages; 1 if a cell failed, with its name."""
    book = ROOT / "build" / "book"
    shutil.rmtree(book, ignore_errors=True)
    book.mkdir(parents=True)
    titles, failed = {}, []
    with tempfile.TemporaryDirectory() as folder:
        notebooks = copy_layout(Path(folder))
        for path in NOTEBOOKS:
            started = time.monotonic()
            done = execute(notebooks / path.name)
            titles[path.stem] = title(done)
            failed += [f"{path.name}: {error}" for error in errors(done)]
            (book / f"{path.stem}.html").write_text(page(done, notebooks), encoding="utf-8")
            print(f"  {path.stem}: {time.monotonic() - started:.0f} s", flush=True)
    (book / "index.html").write_text(index(titles), encoding="utf-8")
    print("\n".join(failed) or f"The book is ready: {book / 'index.html'}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
