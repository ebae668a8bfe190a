"""Every notebook, as shipped, run by nbclient: no failure, no warning, pictures with words."""

import re
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest

from ddp_workbook.exercises.judging.catalogue import find
from tools import book

# Seconds of this run, on any machine: about ten times what two quiet cores took. What readers wait
# for is held by the sum, below.
LONGEST = {"00_start_here": 100}
LONGEST_OTHER = 300
TOGETHER = 150  # DESIGN's bound for the notebooks 00 to 06, on two cores
NO_FIGURE = {"00_start_here"}

SECONDS: dict[str, float] = {}


@dataclass
class Executed:
    """A notebook after its run."""

    stem: str
    notebook: nbformat.NotebookNode
    seconds: float

    def outputs(self) -> list[tuple[str, nbformat.NotebookNode]]:
        """(cell id, output) of all code cells."""
        code = [cell for cell in self.notebook.cells if cell.cell_type == "code"]
        return [(cell.id, output) for cell in code for output in cell.outputs]

    def pages(self) -> list[tuple[str, str]]:
        """(cell id, HTML) of all outputs that show HTML."""
        return [
            (cell, output.data["text/html"])
            for cell, output in self.outputs()
            if "text/html" in output.get("data", {})
        ]


def run(path: Path) -> Executed:
    """Execute one notebook where it lies."""
    started = time.monotonic()
    notebook = book.execute(path)
    return Executed(path.stem, notebook, time.monotonic() - started)


@pytest.fixture(scope="module", params=book.NOTEBOOKS, ids=lambda path: path.stem)
def executed(request, tmp_path_factory) -> Executed:
    """Each notebook of the workbook, executed once in a copy of the folders that it refers to."""
    folder = book.copy_layout(tmp_path_factory.mktemp("checkout"))
    done = run(folder / request.param.name)
    SECONDS[done.stem] = done.seconds
    return done


def warnings(done: Executed) -> list[str]:
    """What was written to stderr: readers take red text for their own fault."""
    return [
        f"cell {cell}: {output.text}"
        for cell, output in done.outputs()
        if output.output_type == "stream" and output.name == "stderr"
    ]


def pictures(done: Executed) -> list[str]:
    """All <img> tags."""
    return [tag for _, text in done.pages() for tag in re.findall(r"<img\b[^>]*>", text)]


def wordless_pictures(done: Executed) -> list[str]:
    """Pictures without alt text, and pictures that are not shown as <img> and so cannot have it."""
    bare = [tag[:80] for tag in pictures(done) if not re.search(r'\balt="[^"]{10,}"', tag)]
    raw = [
        f"cell {cell}: {mime}"
        for cell, output in done.outputs()
        for mime in output.get("data", {})
        if mime in ("image/png", "image/svg+xml", "image/jpeg")
        and "<img" not in output.data.get("text/html", "")
    ]
    return bare + raw


def test_no_cell_fails(executed):
    """Cells tagged raises-exception must raise, the others must not."""
    assert book.errors(executed.notebook) == []


def test_no_warning_is_shown(executed):
    """Nothing on stderr."""
    assert warnings(executed) == []


def test_pictures_have_words(executed):
    """Who cannot see a figure can read it."""
    assert wordless_pictures(executed) == []


def test_there_is_a_figure(executed):
    """Chapters draw what ranks really had."""
    assert pictures(executed) or executed.stem in NO_FIGURE


def test_untouched_exercises_say_so(executed):
    """Run All gets past them, and nobody is told of a mistake that was not made."""
    for cell, shown in verdicts(executed).items():
        assert shown.endswith(": not attempted yet"), cell


def test_it_stays_in_its_time(executed):
    """No notebook that somebody waits for without knowing why."""
    assert executed.seconds < LONGEST.get(executed.stem, LONGEST_OTHER)


def test_the_notebooks_stay_in_their_time_together():
    """00 to 06, as shipped; counted only when all of them ran in this session."""
    early = [path.stem for path in book.NOTEBOOKS if path.stem < "07"]
    if set(early) <= set(SECONDS):
        assert sum(SECONDS[stem] for stem in early) < 2 * TOGETHER  # twice, on a busy machine


# The same with the solutions filled in

WITH_EXERCISES = [path for path in book.NOTEBOOKS if "%%exercise" in path.read_text()]


def verdicts(done: Executed) -> dict[str, str]:
    """What each exercise's cell said, by the cell's id."""
    return {
        cell.id: cell.outputs[0].data["text/plain"]
        for cell in done.notebook.cells
        if cell.source.startswith("%%exercise")
    }


def fill_in(notebook: nbformat.NotebookNode) -> list[str]:
    """Put the solutions into a notebook's exercises; returns their names."""
    found = []
    for cell in notebook.cells:
        if match := re.match(r"%%exercise (\w+)\n", cell.source):
            found.append(match[1])
            cell.source = match[0] + find(match[1]).solution
    return found


@pytest.mark.parametrize("path", WITH_EXERCISES, ids=lambda path: path.stem)
def test_solved(path, tmp_path):
    """Every cell runs, every verdict is a success, and the last line knows it."""
    place = book.copy_layout(tmp_path) / path.name
    notebook = nbformat.read(place, as_version=4)
    names = fill_in(notebook)
    nbformat.write(notebook, place)
    done = run(place)
    assert book.errors(done.notebook) == []
    assert warnings(done) == []
    assert [shown for shown in verdicts(done).values() if not shown.startswith(tuple(names))] == []
    progress = done.notebook.cells[-1].outputs[0].data["text/plain"]
    assert f"{len(names)} of {len(names)} solved" in progress


# That the checks above can fail

FAILING = """
raise ValueError("meant")
---
import sys; print("careful", file=sys.stderr)
---
from IPython.display import HTML; HTML('<img src="data:,">')
---
from IPython.display import SVG; SVG('<svg xmlns="http://www.w3.org/2000/svg"/>')
---raises
1 + 1
---raises
raise KeyError("as planned")
---
HTML('<img src="data:," alt="two bars, the left one is higher">')
"""


def test_each_fault_is_seen(tmp_path):
    """A notebook with one fault of each kind, and two cells without any."""
    cells = []
    for number, text in enumerate(FAILING.split("---")):
        tags = ["raises-exception"] if text.startswith("raises") else []
        source = text.removeprefix("raises").strip()
        metadata = {"tags": tags}
        cells.append(nbformat.v4.new_code_cell(source, id=f"cell-{number}", metadata=metadata))
    path = tmp_path / "faulty.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    done = run(path)
    failed = " ".join(book.errors(done.notebook))
    assert re.findall(r"cell-\d", failed) == ["cell-0", "cell-4"]
    assert "ValueError: meant" in failed
    assert [line[:11] for line in warnings(done)] == ["cell cell-1"]
    assert len(wordless_pictures(done)) == 2
    assert len(pictures(done)) == 2
