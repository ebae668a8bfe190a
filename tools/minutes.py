"""Computes how many minutes a page takes: python -m tools.minutes [NOTEBOOK ...]

Teaching is words read at 180 a minute, code read at 30 lines a minute, half a minute for each
question to predict, and the seconds that its cells run. Code that a cell shows counts once the page
has been executed. Exercises take the minutes that each of them states. A page gives both numbers
under its question.
"""

import re
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[1]
WORDS, LINES, PREDICTION = 180, 30, 0.5
STATED = re.compile(r"\*teaching (\d+) min · exercises (\d+) min\*")
SHOWS_CODE = ("show_code(", "what_changed(")


def stated(notebook: nbformat.NotebookNode) -> tuple[int, int] | None:
    """The minutes that a page gives for teaching and for its exercises; None if it gives none."""
    found = STATED.search(notebook.cells[0].source)
    return (int(found[1]), int(found[2])) if found else None


def teaching(notebook: nbformat.NotebookNode, seconds: float = 0.0) -> float:
    """Minutes to read a page and its code, to predict, and to wait `seconds` for its cells.

    An exercise's cells, whose ids begin with ex-, are left out: its own minutes include them.
    """
    words = lines = predictions = 0
    for cell in notebook.cells:
        if cell.id.startswith("ex-"):
            continue
        if cell.cell_type == "markdown":
            words += len(re.findall(r"\w[\w'.-]*", cell.source))
            predictions += cell.source.count("**Predict.**")
        elif cell.cell_type == "code":
            lines += lines_of(cell.source)
            if cell.source.startswith(SHOWS_CODE):
                lines += sum(lines_of(output.data["text/plain"]) for output in cell.outputs)
    return words / WORDS + lines / LINES + predictions * PREDICTION + seconds / 60


def lines_of(code: str) -> int:
    """Lines that are not empty."""
    return sum(bool(line.strip()) for line in code.splitlines())


def exercises(notebook: nbformat.NotebookNode) -> int:
    """Minutes for all exercises of a page, as their files state them."""
    from ddp_workbook.exercises.judging.catalogue import find

    names = [re.match(r"%%exercise (\w+)", cell.source) for cell in notebook.cells]
    return sum(find(name[1]).module.MINUTES for name in names if name)


def main() -> None:
    """Print a line for each page: the computed minutes, and those that it states."""
    for path in [Path(word) for word in sys.argv[1:]] or sorted(ROOT.glob("notebooks/*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        said = stated(notebook)
        words = f"states {said[0]} and {said[1]}" if said else "states neither"
        computed = f"teaching {teaching(notebook):.0f}, exercises {exercises(notebook)}"
        print(f"{path.stem}: {computed}; {words}")


if __name__ == "__main__":
    main()
