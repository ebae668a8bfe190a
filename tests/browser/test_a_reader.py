"""What a reader does in JupyterLab, by mouse and keyboard, in Chromium."""

import subprocess
import sys
from pathlib import Path

import pytest

from ddp_workbook.judging.catalogue import find
from ddp_workbook.page.after_restart import ADVICE
from tests.browser.lab import Editor, lab
from tools import book

pytestmark = pytest.mark.browser
FIRST_PAGE = "notebooks/00_start_here.ipynb"
BELOW = "import psutil\n[child.pid for child in psutil.Process().children(recursive=True)]"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the notebooks' folders."""
    root = tmp_path_factory.mktemp("checkout")
    book.copy_layout(root)
    return root


@pytest.fixture(scope="module")
def open_in_lab(checkout):
    """One JupyterLab and one browser for all tests: opens a notebook or a file."""
    with lab(checkout) as open_document:
        yield open_document


@pytest.fixture(scope="module")
def notebook(open_in_lab):
    """The first page, its imports done; what a test writes into a cell stays there."""
    notebook = open_in_lab(FIRST_PAGE)
    notebook.run("imports")
    yield notebook
    notebook.close()


def test_lines_of_output_break_between_words(notebook):
    """JupyterLab itself breaks them anywhere; make lab's own line of CSS is there."""
    notebook.run("first-sum")
    style = "pre => getComputedStyle(pre).wordBreak"
    assert notebook.page.locator(".jp-OutputArea-output pre").first.evaluate(style) == "normal"


WRONG = """%%exercise mean_over_ranks
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    total = torch.tensor(value)
    dist.all_reduce(total)
    return total.item()
"""


def test_an_exercise_wrongly_and_then_rightly(notebook):
    """Type, run, read, open a hint; the second time a solution is offered, too; then rightly."""
    cell = "ex-mean-over-ranks"
    assert "not attempted yet" in notebook.run(cell)
    notebook.write(cell, WRONG)
    output = notebook.run(cell)
    assert "Not yet: mean_over_ranks at 4 ranks" in output
    assert "This is the sum" in output
    texts = find("mean_over_ranks").hints
    verdict = notebook.cell(cell)[1]
    assert "One solution" not in verdict.inner_text() and "Hint 2" not in verdict.inner_text()
    verdict.get_by_text("Hint 1 of 2").click()
    assert texts[0] in " ".join(verdict.inner_text().split())
    notebook.write(cell, WRONG + "# once more\n")
    notebook.run(cell)
    verdict.get_by_text("One solution").click()
    assert "/ dist.get_world_size()" in verdict.locator(".jp-OutputArea").inner_text()
    assert not any(text in notebook.run(f"{cell}-hint") for text in texts), "a hint is folded"
    notebook.write(cell, WRONG.replace("total.item()", "total.item() / dist.get_world_size()"))
    assert "every rank returns the same mean of all" in notebook.run(cell)
    assert "1 of 1 solved" in notebook.run("progress")
    assert notebook.errors() == []
    assert notebook.faults() == []


def test_a_guess_by_keyboard_and_by_mouse(notebook):
    """Tab to a button, another one by mouse; the answer stands below, and no button works then."""
    cell = "predict-order-of-greetings"
    notebook.run(cell)
    question = notebook.cell(cell)[1]
    first, *_, last = (
        question.get_by_role("button", name="0, 1")
        .or_(question.get_by_role("button", name="any order"))
        .all()
    )
    first.focus()
    notebook.page.keyboard.press("Enter")
    question.get_by_text("Your guess: a.").wait_for()
    last.click()
    question.get_by_text("Your guess: c.").wait_for()
    assert "Right: any order, and it can change" in notebook.run("greeting")
    question.get_by_text("Right:").wait_for()
    assert first.is_disabled() and last.is_disabled()


def test_a_number_is_guessed_in_a_field_and_the_page_ends_with_the_surprise(notebook):
    notebook.run("guess")
    question = notebook.cell("guess")[1]
    question.get_by_role("textbox", name="your guess").fill("15")
    notebook.page.keyboard.press("Enter")
    question.get_by_text("Your guess: 15.").wait_for()
    notebook.run("guess-file")
    assert "Your guess: 15. The answer: 21." in notebook.run("guess-reveal")
    assert "Your guess: 15. The answer: 21." in notebook.run("progress")


def test_a_stub_comes_back_when_the_page_is_loaded_again(notebook, checkout):
    """An answer that is beyond repair: save, `ddp-workbook reset`, Reload Notebook from Disk."""
    cell = "ex-mean-over-ranks"
    ruined = "%%exercise mean_over_ranks\nnothing is left of it"
    notebook.write(cell, ruined)
    notebook.save()
    command = Path(sys.executable).with_name("ddp-workbook")
    line = [command, "reset", "mean_over_ranks", "--notebook", checkout / FIRST_PAGE]
    result = subprocess.run(line, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    notebook.menu("File", "docmanager:reload")
    notebook.wait_for(lambda: notebook.source(cell) != ruined)
    assert notebook.source(cell).endswith(find("mean_over_ranks").stub.rstrip("\n"))
    copies = (checkout / "notebooks/work/exercises").glob("mean_over_ranks*.py")
    assert any("nothing is left of it" in path.read_text() for path in copies)


HANG = """%%ranks 2 --timeout 900
import time
print("here")
if rank == 0:
    dist.all_reduce(torch.ones(1))
time.sleep(900)
"""


def test_the_stop_button_ends_a_hang_with_its_report(notebook):
    """The kernel lives, its variables too, and no rank is left."""
    notebook.write("secret", BELOW)
    before = notebook.run("secret")
    notebook.write("secret-ranks", HANG)
    count = notebook.start("secret-ranks")
    notebook.wait_for(lambda: notebook.cell("secret-ranks")[1].inner_text().count("] here") == 2)
    notebook.press("interrupt")
    output = notebook.wait("secret-ranks", count)
    assert "Interrupted." in output and "time.sleep(900)" in output
    assert notebook.run("secret") == before


def test_after_a_restart_the_page_says_what_to_do(notebook):
    """Run All Above Selected Cell then brings everything back."""
    notebook.restart()
    assert ADVICE in notebook.run("greeting")
    notebook.select("secret")
    notebook.menu("Run", "notebook:run-all-above")
    assert "I am rank 3 of 4" in notebook.run("greeting")


USES_THE_FILE = "from work.sum_of_ranks import sum_of_ranks\nlaunch(sum_of_ranks, ranks=2)"


def test_a_worker_edited_in_the_editor_is_what_the_next_launch_runs(notebook, open_in_lab):
    """The file is open in another tab; Ctrl + S there, Shift + Enter here."""
    notebook.run("guess-file")
    notebook.write("guess-reveal", USES_THE_FILE)
    assert "[3.0, 3.0]" in notebook.run("guess-reveal")
    editor = open_in_lab("notebooks/work/sum_of_ranks.py", Editor)
    editor.write(editor.text().replace("return x.item()", "return 10 * x.item()"))
    editor.save()
    assert "[30.0, 30.0]" in notebook.run("guess-reveal")
    editor.close()


def test_two_pages_at_once(notebook, open_in_lab):
    """One page hangs for three seconds; the other runs its ranks meanwhile."""
    other = open_in_lab("notebooks/03_process_groups.ipynb")
    other.run("imports")
    count = notebook.start("missed-meeting")
    other.write("imports", "%%ranks 4\nx = torch.ones(1)\ndist.all_reduce(x)\nx.item()")
    assert other.run("imports").count("4.0") == 4
    assert "all_reduce" in notebook.wait("missed-meeting", count)
    assert notebook.faults() == other.faults() == []
    other.close()
