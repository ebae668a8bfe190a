"""The pages of `make book`: complete, and readable without a network."""

import re

import nbformat

from tools import book

CELLS = [
    ("markdown", "# 01 Meeting & greeting\nSee [chapter 00](00_start_here.ipynb)."),
    ("code", "print('hello from a cell')"),
    ("code", "from IPython.display import HTML; HTML('<a href=\"05_collectives.ipynb\">05</a>')"),
    ("markdown", "![a red square](../figs/square.svg)"),
]


def small_notebook(folder):
    """Three cells, executed where their picture can be found."""
    (folder / "notebooks").mkdir()
    (folder / "figs").mkdir()
    square = '<svg xmlns="http://www.w3.org/2000/svg"><title>red</title></svg>'
    (folder / "figs/square.svg").write_text(square)
    make = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    cells = [make[kind](text) for kind, text in CELLS]
    path = folder / "notebooks" / "01_greeting.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return book.execute(path)


def test_a_page_stands_alone(tmp_path):
    """Outputs, title and pictures are in it; nothing is loaded from anywhere."""
    text = book.page(small_notebook(tmp_path), tmp_path / "notebooks")
    assert "hello from a cell" in text
    assert "<title>01 Meeting &amp; greeting</title>" in text
    assert 'href="00_start_here.html"' in text and 'href="05_collectives.html"' in text
    assert "sliders" in text
    loaded = re.findall(r'<(?:script|img|link)\b[^>]*?\b(?:src|href)="([^"]+)"', text)
    assert loaded
    assert [target[:40] for target in loaded if not target.startswith("data:")] == []


def test_the_index_names_every_page():
    """A link and a title for each, with their signs escaped."""
    text = book.index({"00_start_here": "Start here", "01_a": "A < B"})
    assert '<a href="00_start_here.html">Start here</a>' in text
    assert '<a href="01_a.html">A &lt; B</a>' in text


def test_a_chapter_comes_before_its_further_pages():
    """Also where its name is later in the alphabet."""
    stems = ["02_b", "01_further_a", "01_zebra"]
    text = book.index({stem: stem for stem in stems})
    assert re.findall(r'href="(\w+).html"', text) == ["01_zebra", "01_further_a", "02_b"]
    assert text.count("<ul>") == 2
