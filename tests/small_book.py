"""A page with a cell of each kind that the book shows in its own way."""

from pathlib import Path

import nbformat

CELLS = [
    ("markdown", "# 01 Meeting & greeting\nSee [chapter 00](00_start_here.ipynb)."),
    (
        "code",
        "from ddp_workbook import hint, predict, solution\nprint('hello from a cell')",
    ),
    ("code", "from ddp_workbook import progress\n\nprogress('start_here')"),
    ("code", "from IPython.display import HTML; HTML('<a href=\"05_collectives.ipynb\">05</a>')"),
    (
        "code",
        "from ddp_workbook import stepper\nstepper([HTML('<b>first</b>'), HTML('<b>second</b>')])",
    ),
    ("markdown", "![a red square](../figs/square.svg), [a file](../src/x.py), <kbd>Enter</kbd>"),
    ("markdown", "## A question\n**Predict.** What does it print?"),
    ("code", "print('the', 'answer')"),
    ("markdown", "It printed two words, which nobody knew.\n\n## Next\n**Predict.** And now?"),
    ("code", "predict('sum', None)"),
    ("code", "1 + 1"),
    ("code", "print('and', 'more')"),
    ("markdown", "Two."),
    ("code", "hint('mean_over_ranks')"),
    ("code", "solution('mean_over_ranks')"),
    ("code", "progress('start_here')"),
]
IDS = [
    "title",
    "hello",
    "solved",
    "link",
    "slider",
    "picture",
    "ask",
    "tell",
    "told",
    "guess",
    "sum",
    "more",
    "two",
]
IDS += ["ex-x-hint", "ex-x-solution", "solved-now"]


def write_small(checkout: Path) -> Path:
    """Write the cells as a notebook, and their picture, to such a folder."""
    (checkout / "notebooks").mkdir(exist_ok=True)
    (checkout / "figs").mkdir(exist_ok=True)
    square = '<svg xmlns="http://www.w3.org/2000/svg"><title>red</title></svg>'
    (checkout / "figs/square.svg").write_text(square)
    make = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    cells = [make[kind](text, id=id) for (kind, text), id in zip(CELLS, IDS, strict=True)]
    path = checkout / "notebooks" / "01_greeting.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path
