"""Every notebook, run by nbclient: no failure, no warning, pictures with words.

The solutions are filled in, in the core pages by `make test`, in the further ones for a push:
the same cells run as in the notebook as shipped, and the exercises' cells too, with what an
experiment does with a solved attempt. Of the form as shipped this leaves out the untouched stubs,
which test_exercises.py looks at one by one, and what an experiment does without an attempt
(test_exercise_cells.py). `--all` runs that form as well.
"""

import re
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest

from ddp_workbook.judging.catalogue import find
from ddp_workbook.page import questions
from ddp_workbook.page.pages import place_of
from ddp_workbook.workshop import minutes
from tools import book

# Seconds of this run, on any machine: about ten times what two quiet cores took. What readers wait
# for is a row of the benchmark.
LONGEST = {"00_start_here": 200}
LONGEST_OTHER = 600
FIRST_SCREEN = 6  # cells
NO_GUESS = "The answer:"


@dataclass
class PageRun:
    """A notebook after its run; `names` are the exercises that had been solved in it."""

    stem: str
    notebook: nbformat.NotebookNode
    seconds: float
    names: list[str]

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

    def verdicts(self) -> dict[str, str]:
        """What each exercise's cell said, by the cell's id."""
        return {
            cell.id: cell.outputs[0].data["text/plain"]
            for cell in self.notebook.cells
            if cell.source.startswith("%%exercise")
        }


def run(path: Path, names: list[str]) -> PageRun:
    """Execute one notebook in its folder."""
    start = time.monotonic()
    notebook = book.execute(path)
    return PageRun(path.stem, notebook, time.monotonic() - start, names)


def fill_in(path: Path) -> list[str]:
    """Put the solutions into the notebook's exercises; returns their names."""
    notebook, found = nbformat.read(path, as_version=4), []
    for cell in notebook.cells:
        if match := re.match(r"%%exercise (\w+)\n", cell.source):
            found.append(match[1])
            cell.source = match[0] + find(match[1]).solution
    nbformat.write(notebook, path)
    return found


def forms() -> list:
    """Each notebook solved, and as shipped: in that form alone if it has no exercise."""
    found = []
    for path in book.NOTEBOOKS:
        core = "_further_" not in path.stem
        mark = pytest.mark.long if core else pytest.mark.push("further pages")
        exercises = "%%exercise" in path.read_text(encoding="utf-8")
        shipped = pytest.mark.release("notebooks as shipped") if exercises else mark
        found.append(pytest.param((path, False), id=f"{path.stem}_as_shipped", marks=shipped))
        if exercises:
            found.append(pytest.param((path, True), id=f"{path.stem}_solved", marks=mark))
    return found


pytestmark = pytest.mark.memory  # a kernel, its fork server, and up to four ranks or torchruns


@pytest.fixture(scope="module", params=forms())
def page_run(request, tmp_path_factory) -> PageRun:
    """A notebook, executed once in a copy of the folders that it refers to."""
    path, solved = request.param
    place = book.copy_layout(tmp_path_factory.mktemp("checkout")) / place_of(path.stem)
    return run(place, fill_in(place) if solved else [])


def warnings(page_run: PageRun) -> list[str]:
    """What was written to stderr: readers take red text for their own fault."""
    return [
        f"cell {cell}: {output.text}"
        for cell, output in page_run.outputs()
        if output.output_type == "stream" and output.name == "stderr"
    ]


def pictures(page_run: PageRun) -> list[str]:
    """All <img> tags."""
    return [tag for _, text in page_run.pages() for tag in re.findall(r"<img\b[^>]*>", text)]


def wordless_pictures(page_run: PageRun) -> list[str]:
    """Pictures without alt text, and pictures that are not shown as <img> and so cannot have it."""
    bare = [tag[:80] for tag in pictures(page_run) if not re.search(r'\balt="[^"]{10,}"', tag)]
    raw = [
        f"cell {cell}: {mime}"
        for cell, output in page_run.outputs()
        for mime in output.get("data", {})
        if mime in ("image/png", "image/svg+xml", "image/jpeg")
        and "<img" not in output.data.get("text/html", "")
    ]
    return bare + raw


def addresses(page_run: PageRun) -> list[str]:
    """HTML in whose place IPython in a terminal would show no more than an object's address."""
    address = re.compile(r"<[^<>]* at 0x[0-9a-f]+>|<IPython\..*>")
    return [
        f"cell {cell}: {output.data['text/plain']}"
        for cell, output in page_run.outputs()
        if "text/html" in output.get("data", {}) and address.fullmatch(output.data["text/plain"])
    ]


def test_no_cell_fails(page_run):
    """Cells tagged raises-exception must raise, the others must not."""
    assert book.errors(page_run.notebook) == []


def test_no_warning_is_shown(page_run):
    """Nothing on stderr."""
    assert warnings(page_run) == []


def test_pictures_have_words(page_run):
    """A reader who cannot see a figure can read it."""
    assert wordless_pictures(page_run) == []


def test_a_terminal_shows_words(page_run):
    """What is shown in place of HTML is no object's address, as in <Styler at 0x7f…>."""
    assert addresses(page_run) == []


def test_a_picture_is_in_the_first_screen(page_run):
    """After the title, the imports, and a cell or two that make what it shows."""
    first_cells = {cell.id for cell in page_run.notebook.cells[:FIRST_SCREEN]}
    assert first_cells & {cell for cell, text in page_run.pages() if "<img" in text}


def test_exercises_say_how_they_are(page_run):
    """Untouched ones that they are; solved ones that they are right, and the last line counts."""
    names, said = page_run.names, page_run.verdicts()
    if names:
        assert [text for text in said.values() if not text.startswith(tuple(names))] == []
        assert not [text for text in said.values() if "is solved" not in text.partition(":")[0]]
        progress = page_run.notebook.cells[-1].outputs[0].data["text/plain"]
        assert f"{len(names)} of {len(names)} solved" in progress
    else:
        assert [text for text in said.values() if not text.endswith(": not attempted yet")] == []


def test_what_it_measures_is_the_answer_of_its_questions(page_run):
    """As its table says, where it says one; and each answer is shown once."""
    shown = [
        output.data["text/plain"]
        for _, output in page_run.outputs()
        if NO_GUESS in output.get("data", {}).get("text/plain", "")
    ]
    asked = questions.of_page(page_run.stem)
    assert len(shown) == len(asked)
    right = [one for one in asked.values() if one.right is not None]
    answers = [f"{NO_GUESS} {one.words(one.right)}. {one.because}".rstrip() for one in right]
    assert [answer for answer in answers if answer not in shown] == []


def test_it_stays_in_its_time(page_run):
    """No notebook makes a reader wait without saying why."""
    assert page_run.seconds < LONGEST.get(page_run.stem, LONGEST_OTHER)


def test_it_takes_the_minutes_that_it_states(page_run):
    """Within a fifth, on a busy machine, too."""
    stated, _ = minutes.stated_minutes(page_run.notebook)
    assert stated == pytest.approx(minutes.teaching(page_run.notebook, page_run.seconds), rel=0.2)


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
    done = run(path, [])
    failed = " ".join(book.errors(done.notebook))
    assert re.findall(r"cell-\d", failed) == ["cell-0", "cell-4"]
    assert "ValueError: meant" in failed
    assert [line[:11] for line in warnings(done)] == ["cell cell-1"]
    assert len(wordless_pictures(done)) == 2
    assert [line[:11] for line in addresses(done)] == ["cell cell-2", "cell cell-6"]
    assert len(pictures(done)) == 2
