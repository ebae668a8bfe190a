"""A page with a cell of each kind that the book shows in its own way."""

from pathlib import Path

import nbformat

CELLS = {  # id -> source
    "title": "# 01 Meeting & greeting\nSee [chapter 00](00_start_here.ipynb).",
    "imports": "%load_ext ddp_workbook\nfrom ddp_workbook import hint, predict, solution",
    "hello": "print('hello from a cell')",
    "solved": "from ddp_workbook import progress\n\nprogress('start_here')",
    "link": "from IPython.display import HTML; HTML('<a href=\"05_collectives.ipynb\">05</a>')",
    "slider": "from ddp_workbook import stepper\n"
    "stepper([HTML('<b>first</b>'), HTML('<b>second</b>')])",
    "picture": "![a red square](../figs/square.svg), [a file](../src/x.py), <kbd>Enter</kbd>",
    "ask": "## A question\nSomething is printed.",
    "asked": 'predict("order_of_greetings")',
    "tell": "print('the', 'answer')",
    "told": "It printed two words, which nobody knew.\n\n## Next\nAnd now?",
    "guess": 'predict("sum_of_six_ranks")',
    "sum": "1 + 1",
    "more": "print('and', 'more')",
    "two": "Two.",
    "ex-x-hint": "hint('mean_over_ranks')",
    "ex-x-solution": "solution('mean_over_ranks')",
    "solved-now": "progress('start_here')",
}
MARKDOWN = ("title", "picture", "ask", "told", "two")


def write_small(checkout: Path) -> Path:
    """Write the cells as a notebook, and their picture, to such a folder."""
    (checkout / "notebooks").mkdir(exist_ok=True)
    (checkout / "figs").mkdir(exist_ok=True)
    square = '<svg xmlns="http://www.w3.org/2000/svg"><title>red</title></svg>'
    (checkout / "figs/square.svg").write_text(square)
    text, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    cells = [(text if id in MARKDOWN else code)(source, id=id) for id, source in CELLS.items()]
    path = checkout / "notebooks" / "01_greeting.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path
