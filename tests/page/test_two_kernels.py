"""Two kernels in one folder: what one writes never takes the place of the other's unseen."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from ddp_workbook.judging import attempts
from ddp_workbook.page.pages import all_pages
from manyranks.launcher.launch import launch
from tests.cells import Kernel
from tests.leaks import no_rank_left, wait_until  # noqa: F401 (a fixture)
from tests.workers import saving

pytestmark = pytest.mark.push("pages in a kernel")

WORKER = "def who():\n    return {whose!r}\n"
CHANGE_WARNING = "is not as this notebook wrote it"
NAME = "mean_over_ranks"


@pytest.fixture(scope="module")
def kernel_pair(tmp_path_factory):
    """Two kernels whose current folder is the same: `a` and `b`, and that `folder`."""
    place, kernels = tmp_path_factory.mktemp("two"), {}
    folder = place / "folder"
    (folder / "work").mkdir(parents=True)
    try:
        for name in ("a", "b"):
            (place / name).mkdir()
            kernels[name] = Kernel(place / name)
        start = f"import os; os.chdir({str(folder)!r})\n%load_ext ddp_workbook\n"
        start += "from ddp_workbook import launch, predict, reveal, progress"
        requests = [kernel.send(start) for kernel in kernels.values()]
        pages = [k.answer(request) for k, request in zip(kernels.values(), requests, strict=True)]
        assert pages == ["", ""]
        yield SimpleNamespace(**kernels, folder=folder)
    finally:
        for kernel in kernels.values():
            kernel.close()


def write(kernel: Kernel, name: str, text: str) -> str:
    """Run a `%%writefile` cell; what it printed."""
    return kernel.run(f"%%writefile work/{name}.py\n{text}")


def run(kernel: Kernel, name: str, ranks: int = 2) -> str:
    """Import `who` of that file as pages do, and launch it."""
    return kernel.run(f"from work.{name} import who\nprint(launch(who, ranks={ranks}))")


# Cells


def test_a_ranks_cell_runs_what_stands_in_it_whatever_is_saved_under_its_name(kernel_pair):
    """The other kernel overwrites every cell's file as fast as it can."""
    kernel_pair.b.run(
        "import threading, pathlib\n"
        "stop = threading.Event()\n"
        "def overwrite():\n"
        "    while not stop.wait(0.0005):\n"
        "        for path in pathlib.Path('work/cells').glob('cell_*.py'):\n"
        "            path.write_text('\\n\\nprint(\"theirs\", 1 / 0)')\n"
        "threading.Thread(target=overwrite, daemon=True).start()"
    )
    try:
        for number in range(3):
            page = kernel_pair.a.run(f"%%ranks 2\nprint('mine', {number})")
            assert page.count(f"mine {number}") == 2 and "theirs" not in page
        page = kernel_pair.a.run("%%ranks 2\nx = 1\nraise ValueError('mine')")
        assert "raise ValueError('mine')" in page and "theirs" not in page
    finally:
        kernel_pair.b.run("stop.set()")


# Workers in files


def test_a_worker_that_the_other_kernel_wrote_is_said_once_and_own_ones_are_not(kernel_pair):
    write(kernel_pair.a, "shared", WORKER.format(whose="a's"))
    assert run(kernel_pair.a, "shared").split("\n") == ['["a\'s", "a\'s"]', ""]
    write(kernel_pair.b, "shared", WORKER.format(whose="b's"))
    assert CHANGE_WARNING not in run(kernel_pair.b, "shared")
    page = run(kernel_pair.a, "shared")
    assert "work/shared.py " + CHANGE_WARNING in page and "b's" in page
    assert "run the cell that writes it" in page
    assert "not as" not in run(kernel_pair.a, "shared")  # the reader knows
    write(kernel_pair.a, "shared", WORKER.format(whose="a's again"))
    assert run(kernel_pair.a, "shared").count("\n") == 1
    page = run(kernel_pair.b, "shared")
    assert CHANGE_WARNING in page and "a's again" in page


def test_equal_files_of_two_kernels_are_no_news(kernel_pair):
    for kernel in (kernel_pair.a, kernel_pair.b, kernel_pair.a):
        write(kernel, "equal", WORKER.format(whose="both"))
        assert "not as" not in run(kernel, "equal")
    assert "not as" not in run(kernel_pair.b, "equal")


def test_an_edit_in_an_editor_is_what_runs_next(kernel_pair):
    write(kernel_pair.a, "edited", WORKER.format(whose="a cell"))
    assert "not as" not in run(kernel_pair.a, "edited")
    (kernel_pair.folder / "work/edited.py").write_text(WORKER.format(whose="an edit"))
    page = run(kernel_pair.a, "edited")
    assert "an edit" in page and "work/edited.py " + CHANGE_WARNING in page
    write(kernel_pair.a, "edited", WORKER.format(whose="a cell"))
    assert "not as" not in run(kernel_pair.a, "edited")


def test_a_file_of_several_cells_is_compared_as_a_whole(kernel_pair):
    def both(kernel, whose):
        write(kernel, "parts", f"WHOSE = {whose!r}\n")
        return kernel.run("%%writefile -a work/parts.py\ndef who():\n    return WHOSE")

    assert both(kernel_pair.a, "a's").startswith("Appending to work/parts.py")
    assert "not as" not in run(kernel_pair.a, "parts")
    both(kernel_pair.b, "b's")
    assert "work/parts.py is not as" in run(kernel_pair.a, "parts")
    both(kernel_pair.a, "a's")
    assert "not as" not in run(kernel_pair.a, "parts")


def test_the_first_file_below_work_makes_that_folder(kernel_pair):
    """On page 00, a reader may have skipped the cells that made it before."""
    shutil.rmtree(kernel_pair.folder / "work", ignore_errors=True)
    assert write(kernel_pair.a, "first", "x = 1\n") == "Writing work/first.py\n"
    assert write(kernel_pair.a, "first", "x = 2\n") == "Overwriting work/first.py\n"
    assert (kernel_pair.folder / "work/first.py").read_text() == "x = 2\n"
    assert "No such file or directory" in kernel_pair.a.run("%%writefile nowhere/x.py\n1")


# Exercises


SOLVE = """
from ddp_workbook import yours
from ddp_workbook.judging import attempts
attempts.note_solved(attempts.save({name!r}, {text!r}), "{name} is solved")
"""
ASK = f"print(yours({NAME!r}).path.read_text(), progress('start_here'))"


def test_each_kernel_goes_on_with_its_own_solution(kernel_pair):
    """Both have solved the exercise; each calls its own solution, also after the other's."""
    kernel_pair.a.run(SOLVE.format(name=NAME, text="# a's"))
    kernel_pair.b.run(SOLVE.format(name=NAME, text="# b's"))
    for kernel, own in ((kernel_pair.a, "a's"), (kernel_pair.b, "b's")):
        page = kernel.run(ASK)
        assert f"# {own}" in page and "1 of 1 solved" in page
    # What passed last is what a later kernel finds; after it is thrown away, the one before.
    result = SimpleNamespace(**read_in_new_process(kernel_pair.folder))
    assert result.solved.endswith("# b's") and result.progress.startswith("Exercises of this")
    for note in (kernel_pair.folder / attempts.FOLDER).glob(f"{NAME}.2.*"):
        note.unlink()
    assert read_in_new_process(kernel_pair.folder)["solved"].endswith("# a's")
    assert "# a's" in kernel_pair.b.run(ASK)


def read_in_new_process(folder: Path) -> dict[str, str]:
    [found] = launch(saving.read_progress, NAME, str(folder), ranks=1)
    return found


def test_the_attempt_of_last_time_is_this_kernels_own(kernel_pair):
    """`<name>.py` is the latest of both; each page names the file in which its own stands."""
    ask = "print(attempts.latest_attempt('where_is').read_text())"
    save = "from ddp_workbook.judging import attempts\nattempts.save('where_is', {!r})"
    kernel_pair.a.run(save.format("# a's"))
    kernel_pair.b.run(save.format("# b's"))
    assert "# a's" in kernel_pair.a.run(ask) and "# b's" in kernel_pair.b.run(ask)
    (kernel_pair.folder / attempts.FOLDER / "where_is.py").write_text("# an editor's")
    assert "# an editor's" in kernel_pair.a.run(ask) and "# an editor's" in kernel_pair.b.run(ask)


def test_two_processes_that_save_and_solve_at_the_same_moment_lose_nothing(tmp_path):
    """Equal and different attempts, and the notes of those that passed."""
    both = launch(saving.save_and_solve_at_once, NAME, 30, str(tmp_path), ranks=2)
    for rank, paths in enumerate(both):
        for number, path in enumerate(paths):
            text = Path(path).read_text().partition("\n")[2]
            assert text == saving.attempt(number, rank)
    notes = (tmp_path / attempts.FOLDER).glob("*.solved")
    notes_text = "".join(note.read_text() for note in notes)
    numbers = [(n, r) for n in range(30) for r in range(2) if r == 0 or n % 3]
    assert [pair for pair in numbers if "{} of rank {}\n".format(*pair) not in notes_text] == []
    assert not [path for path in (tmp_path / attempts.FOLDER).iterdir() if path.name[0] == "."]


def test_two_processes_that_write_the_same_file_at_once(tmp_path):
    """Also where they have the same pid, as in two containers: whole files, and no error."""
    texts = launch(saving.write_at_once, str(tmp_path / "file"), 300, ranks=2)
    assert (tmp_path / "file").read_text() in texts
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_no_two_pages_write_the_same_file():
    """A reader has several of them open, and each runs its own workers."""
    writers: dict[str, set[str]] = {}
    for page in all_pages():
        for cell in nbformat.read(page, 4).cells:
            if cell.source.startswith("%%writefile"):
                file = cell.source.partition("\n")[0].split()[-1]
                writers.setdefault(file, set()).add(page.name)
    assert writers
    assert {file: pages for file, pages in writers.items() if len(pages) > 1} == {}
