"""A book without answers: what follows a prediction is folded, solutions are left out."""

import re

import nbformat

from ddp_workbook.page.pages import PREDICT_CALL

ANSWER_ID_ENDS = ("-hint", "-solution")  # ends of the ids of an exercise's cells
BEFORE = ("%%writefile", "show_code(")  # beginnings of cells that show no answer
FOLD = '<details class="answer"><summary>Show what happens</summary>\n'


def mark_answers(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """Leave out hints and solutions; return, for each prediction, the ids of the cells to fold.

    These are what the cell that it asks about shows, all cells after that one, and the text that
    explains them. If that text goes on to something else, it is cut in two cells. The cell itself
    can be read: the question is about it.
    """
    notebook.cells = [cell for cell in notebook.cells if not cell.id.endswith(ANSWER_ID_ENDS)]
    answers, answer_ids = [], None
    cells = []
    for cell in notebook.cells:
        if PREDICT_CALL.match(cell.source):
            cells.append(cell)
            if answer_ids:
                answers.append(answer_ids)
            answer_ids = []
        elif answer_ids is None or cell.cell_type != "markdown":
            cells.append(cell)
            if answer_ids:
                answer_ids.append(cell.id)
            elif answer_ids is not None and not cell.source.startswith(BEFORE):
                output_cell = take_outputs(cell)
                cells.append(output_cell)
                answer_ids.append(output_cell.id)
        else:
            answer, rest = cut(cell.source)
            if answer_ids and answer:
                own = nbformat.v4.new_markdown_cell(answer, id=f"{cell.id}-answer")
                cells.append(own)
                answer_ids.append(own.id)
                answers.append(answer_ids)
                answer_ids, cell.source = None, rest
            if cell.source:
                cells.append(cell)
    notebook.cells = cells
    return answers + ([answer_ids] if answer_ids else [])


def take_outputs(cell: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Take the outputs from the cell, and return a cell that has nothing else."""
    output_cell = nbformat.from_dict({**cell, "id": f"{cell.id}-shows", "source": ""})
    output_cell.metadata = nbformat.from_dict({"transient": {"remove_source": True}})
    cell.outputs = []
    return output_cell


def cut(text: str) -> tuple[str, str]:
    """The answer at the beginning of a text, and what comes after it.

    A paragraph with a heading is no part of it.
    """
    paragraphs = text.split("\n\n")
    headings = (n for n, paragraph in enumerate(paragraphs) if paragraph.startswith("##"))
    end = next(headings, len(paragraphs))
    return "\n\n".join(paragraphs[:end]), "\n\n".join(paragraphs[end:])


def fold_answers(page: str, answers: list[list[str]]) -> str:
    """The page with each of these runs of cells inside something to click on."""
    for ids in answers:
        if ids:
            page = fold_cells(page, ids, FOLD)
    return page


def fold_cells(page: str, ids: list[str], fold: str) -> str:
    """The page with these cells, which follow each other, folded; `fold` begins the fold."""
    first, last = place_of(page, ids[0]), end_of(page, ids[-1])
    return f"{page[:first]}{fold}{page[first:last]}</details>\n{page[last:]}"


def place_of(page: str, cell: str) -> int:
    """Where the cell's part of the page begins."""
    return re.search(rf'<div class="jp-Cell[^>]*id="cell-id={re.escape(cell)}"', page).start()


def end_of(page: str, cell: str) -> int:
    """Where it ends: at the next cell, at a fold, or at the end of all cells."""
    start = place_of(page, cell) + 1
    return (
        re.compile(r'<div class="jp-Cell |<details class="(?:answer|imports)">|</main>')
        .search(page, start)
        .start()
    )
