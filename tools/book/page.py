"""One executed notebook as a part of an HTML page: its cells, with pictures and links."""

import base64
import html
import os
import posixpath
import re
from collections.abc import Collection
from pathlib import Path
from urllib.parse import unquote

import nbformat
from nbconvert import HTMLExporter

from ddp_workbook.page import pages
from manyranks.figures.slider import WIDGET
from tools.book.answers import fold_cells
from tools.book.site import DOCUMENTS, Site, source_of

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
OUTPUT_LINK = re.compile(
    r'(?s)<a href="(?:\.\./|further/)?(\w+)\.ipynb((?:#[^"]*)?"[^>]*>)(.*?)</a>'
)
NOTE_ID = "note-of-the-book"
NO_KERNEL = (
    "Without it, this page shows what was recorded: buttons choose one of some pictures, and cells "
    "cannot be run."
)
PICTURE = re.compile(r"!\[([^\]]*)\]\((?:\.\./)*(figs/[^)]+\.svg)\)")
PROGRESS = re.compile(r"progress\([^)]*\)\s*")  # what is solved says nothing about a book's reader
IMPORTS = re.compile(r"(?m)^%load_ext ddp_workbook")
IMPORTS_FOLD = '<details class="imports"><summary>Imports of this page</summary>\n'
# a file that a cell shows or a text names: in a heading of code, in a diff, or as code in a text
SHOWN_FILE = re.compile(
    r"(<div>|<code>|<th\b[^>]*>|<caption>)((?:src|job_scripts|data|benchmarks)/[\w/.-]+\.\w+)"
    r"((?:, from line (\d+))?)(?=<)"
)
HEADING = re.compile(
    r'(?s)<h([1-3]) id="([^"]+)">(.*?)<a class="anchor-link" href="#[^"]+">¶</a></h\1>'
)


def title(notebook: nbformat.NotebookNode) -> str:
    """The notebook's first heading."""
    return notebook.cells[0].source.splitlines()[0].lstrip("# ")


def question(notebook: nbformat.NotebookNode) -> str:
    """The question that the page answers, or its first paragraph."""
    text = notebook.cells[0].source
    match = re.search(r"\*\*Question:\*\* (.*)", text)
    paragraphs = text.partition("\n")[2].strip().split("\n\n")
    sentence = match[1] if match else paragraphs[0].replace("\n", " ")
    return sentence[:1].upper() + sentence[1:]


def of_document(text: str) -> nbformat.NotebookNode:
    """A Markdown file as a notebook of a single cell."""
    cell = nbformat.v4.new_markdown_cell(text, id="text")
    return nbformat.v4.new_notebook(cells=[cell])


def page(
    stem: str,
    notebook: nbformat.NotebookNode,
    folder: Path,
    stems: Collection[str] | None = None,
    site: Site | None = None,
) -> str:
    """The cells of this page as HTML; the pictures beside `folder`, the notebooks', are embedded.

    The book has the pages `stems`, by default all; a link to another page becomes its text. Nothing
    is loaded from a network: formulas are plain text in the notebooks, and widgets are left out.
    """
    site = site or Site()
    here = {path.stem for path in pages.all_pages()} if stems is None else {*stems}
    notebook.cells = [cell for cell in notebook.cells if not PROGRESS.fullmatch(cell.source)]
    imports = [cell.id for cell in notebook.cells if IMPORTS.search(cell.source)][:1]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            embed_pictures(cell, folder.parent)
            cell.source = LINK.sub(lambda match: link(match, stem, here, site), cell.source)
        elif PROGRESS.fullmatch(cell.source.rpartition("\n")[2]):
            cell.outputs = []
        elif pages.PREDICT_CALL.match(cell.source):  # what it shows has the same words
            cell.metadata["transient"] = {"remove_source": True}
        for output in cell.get("outputs", []):
            mend_output(output, here)
    notebook.metadata.pop("widgets", None)  # for them a page would ask a server for a program
    if stem not in DOCUMENTS:
        notebook.cells.insert(1, note(stem, notebook, site))
    exporter = HTMLExporter(template_name="lab", template_file="base.html.j2")
    cells = exporter.from_notebook_node(notebook)[0]
    text = f'<main id="page">\n{cells}\n</main>'
    text = fold_cells(text, imports, IMPORTS_FOLD) if imports else text
    text = HEADING.sub(lambda match: heading(match, stem), text)
    return SHOWN_FILE.sub(lambda match: shown_file(match, site), text)


def note(stem: str, notebook: nbformat.NotebookNode, site: Site) -> nbformat.NotebookNode:
    """What to type to run the page, where it comes from, and what edition it is if that is old."""
    file, record = source_of(stem), notebook.metadata.get("book", {})
    source = site.source(file)
    name = f"`{file}`"
    words = (
        f"> **Run this page:** `make lab`, then open {f'[{name}]({source})' if source else name}. "
        f"{NO_KERNEL}"
    )
    if record.get("old"):
        words = (
            f"> **This page is of an earlier edition**, {record.get('edition', 'unknown')} of "
            f"{record.get('date', 'an unknown day')}: the present one did not run without errors."
            f"\n\n{words}"
        )
    return nbformat.v4.new_markdown_cell(words, id=NOTE_ID)


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


def link(match: re.Match, stem: str, here: Collection[str], site: Site) -> str:
    """A text's link as one of the book: to a page, to a source, or its words and the path."""
    words, target, place = match[1], match[2], match[3] or ""
    if re.match(r"[a-z]+:", target):
        return match[0]
    file = posixpath.normpath(posixpath.join(posixpath.dirname(source_of(stem)), target))
    if file.endswith(".ipynb"):
        name = Path(file).stem
        return f"[{words}]({name}.html{place})" if name in here else words
    for name, document in DOCUMENTS.items():
        if file == document and name in here:
            return f"[{words}]({name}.html{place})"
    if source := site.source(file):
        return f"[{words}]({source})"
    return f"{words} (`{file}`)"


def mend_output(output: nbformat.NotebookNode, here: Collection[str]) -> None:
    """What a cell showed: no widget, and links to pages of the book."""
    data = output.get("data", {})
    data.pop(WIDGET, None)  # its pictures stand beside it as HTML

    def link_of_output(match: re.Match) -> str:
        known = match[1] in here
        return f'<a href="{match[1]}.html{match[2]}{match[3]}</a>' if known else match[3]

    if "text/html" in data:
        data["text/html"] = OUTPUT_LINK.sub(link_of_output, data["text/html"])


def heading(match: re.Match, stem: str) -> str:
    """A heading whose anchor has a name; a document's is the one that GitHub gives it."""
    level, place, words = match[1], match[2], match[3]
    if stem in DOCUMENTS:
        place = re.sub(r"[^\w-]", "", unquote(html.unescape(place)).lower())
    plain = re.sub(r"<[^>]+>", "", words)
    anchor = f'<a class="anchor-link" href="#{place}" aria-label="Link to {plain}">#</a>'
    return f'<h{level} id="{place}">{words}{anchor if level != "1" else ""}</h{level}>'


def shown_file(match: re.Match, site: Site) -> str:
    """The name of a shown file as a link to it, at its line if the repository's is known."""
    before, file, rest, line = match.groups()
    source = site.source(file)
    if not source:
        return match[0]
    place = f"#L{line}" if line and source.startswith("http") else ""
    return f'{before}<a href="{source}{place}">{file}</a>{rest}'


def headings(text: str) -> list[tuple[int, str, str]]:
    """(level, id, words as HTML) of the headings of a page below its title."""
    found = re.findall(r'(?s)<h([23]) id="([^"]+)">(.*?)<a class="anchor-link"', text)
    return [(int(level), place, words) for level, place, words in found]


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
