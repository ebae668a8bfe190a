"""A kernel in which a page's first cells have not run says what to do, in words."""

import re
from pathlib import Path

import nbformat
import pytest

from ddp_workbook.judging.catalogue import names
from ddp_workbook.judging.magics import DEFINITION, UNCHECKED
from ddp_workbook.page import pages
from ddp_workbook.page.after_restart import ADVICE, UNWRITTEN
from ddp_workbook.workshop.execution import copy_layout, errors, execute

pytestmark = pytest.mark.push("pages in a kernel")

CELLS = [
    "%%ranks 2\nrank",
    "%%exercise mean_over_ranks\npass",
    "launch(print)",
    "%load_ext ddp_workbook",
    "launch(print)",
    "from ddp_workbook import launch",
    "lunch(print)",
    "1 / 0",
    "%%ranks 2\nrank",
    "from work.train import train",
    "%%writefile work/other.py\npass",
    "from work.train import train",
    "import no_such_library",
]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory) -> list[str]:
    """What each of CELLS shows in one kernel."""
    return run(tmp_path_factory.mktemp("page"), CELLS)


def run(folder: Path, sources: list[str]) -> list[str]:
    """What each of these cells shows in a kernel of the environment that `make lab` sets up."""
    path = folder / "page.ipynb"
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return [
        "\n".join(
            output.get("text") or "\n".join(output.get("traceback", [])) or str(output.get("data"))
            for output in cell.outputs
        )
        for cell in execute(path).cells
    ]


@pytest.mark.parametrize("number", [0, 1])
def test_a_magic_that_is_not_loaded(outputs, number):
    assert ADVICE in outputs[number] and "not found" not in outputs[number]


@pytest.mark.parametrize("number", [2, 4])
def test_a_name_that_is_not_imported(outputs, number):
    """Also after %load_ext: the imports come in the cell after it."""
    assert outputs[number].endswith(ADVICE) and "name 'launch' is not defined" in outputs[number]


def test_after_the_first_cells_nothing_is_added(outputs):
    """A misspelled name and other errors are the reader's own; the magics work."""
    assert "name 'lunch' is not defined" in outputs[6] and "division by zero" in outputs[7]
    assert not [text for text in outputs[5:] if ADVICE in text]
    assert "rank 1: 1" in outputs[8]


@pytest.mark.parametrize("number", [9, 11])
def test_a_file_that_no_cell_has_written_yet(outputs, number):
    """Before there is a folder work, and in one that holds other files."""
    assert outputs[number].endswith(UNWRITTEN) and "No module named 'work" in outputs[number]


def test_a_library_that_is_missing_is_another_matter(outputs):
    assert outputs[12].endswith("No module named 'no_such_library'")


def test_a_hint_and_an_answer_before_their_time(tmp_path):
    """A sentence and nothing else, instead of a NameError, or of silence."""
    stub = "def mean_over_ranks(value):\n    raise NotImplementedError"
    hint, below, _, late, plain, checked, own = run(
        tmp_path,
        [
            'hint("mean_over_ranks")',
            "# mine\n%%ranks 2\nrank",
            "%load_ext ddp_workbook",
            'hint("mean_over_ranks")',
            f"{stub}\nnot_known",
            f"%%exercise mean_over_ranks\n{stub}",
            "def other():\n    def mean_over_ranks(value):\n        return value",
        ],
    )
    assert hint.strip() == late.strip() == f"UsageError: hint is not there yet. {ADVICE}"
    assert "%%ranks must be the first line of its cell" in below
    assert UNCHECKED.format(name="mean_over_ranks") in plain and "NameError" in plain
    assert "nothing was checked" not in checked + own


def test_no_page_defines_an_exercise_without_its_magic():
    """So the sentence about it is only for readers' own cells."""
    defined = [
        (path.stem, name)
        for path in pages.all_pages()
        for cell in pages.load(path)["cells"]
        if cell["cell_type"] == "code" and not re.search(r"(?m)^%%", pages.source(cell))
        for name in DEFINITION.findall(pages.source(cell))
    ]
    assert {name for _, name in defined} & {*names()} == set()


def test_the_first_page_runs_from_its_last_cell_to_its_first(tmp_path):
    """Whatever a reader skips: a cell needs the first two, and the one that writes its file."""
    path = copy_layout(tmp_path) / "00_start_here.ipynb"
    page = nbformat.read(path, as_version=4)
    first, second, *others = [cell for cell in page.cells if cell.cell_type == "code"]
    page.cells = [first, second, *reversed(others)]
    nbformat.write(page, path)
    result = execute(path)
    assert [error.partition(":")[0] for error in errors(result)] == ["cell guess-reveal"]
    message = next(cell for cell in result.cells if cell.id == "guess-reveal").outputs[-1]
    assert message.traceback[-1].endswith(UNWRITTEN)
