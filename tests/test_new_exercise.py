"""`python -m tools.new_exercise`, in a copy of the tree."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tools import new_exercise
from tools.new_exercise import EXERCISES, WRONG
from tools.set_up import ROOT

PARTS = ("src", "tools", "notebooks", "tests/wrong_answers")
JUDGE = """
from ddp_workbook.exercises.judging import catalogue, judge
from tools.wrong_answers import wrong_answers
if __name__ == "__main__":
    new = catalogue.find("sum_of_all")
    print(judge.examine(new, new.stub).kind)
    print(judge.examine(new, new.solution).kind)
    for one in wrong_answers(new):
        verdict = " ".join(repr(judge.examine(new, one.cell)).split())
        print("told" if one.told[0] in verdict else f"{one} / {verdict}")
    for words, edit in new.module.CHECK.edits:
        verdict = judge.examine(new, edit.of(new.solution))
        print("told" if verdict.rows[-1][1][-20:] == words[-20:] else f"{words} / {verdict}")
"""


@pytest.fixture
def tree(tmp_path) -> Path:
    """A copy of what the tool reads and writes."""
    for part in PARTS:
        ignored = shutil.ignore_patterns("__pycache__", "work", ".ipynb_checkpoints")
        shutil.copytree(ROOT / part, tmp_path / part, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(tree: Path, *words: str) -> subprocess.CompletedProcess:
    """Python in that copy."""
    environment = os.environ | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    return subprocess.run(
        [sys.executable, *words], cwd=tree, env=environment, capture_output=True, text=True
    )


def test_a_new_exercise_is_whole_from_the_first_minute(tree):
    """Stub, solution and wrong answers are judged as they must be; the page has its cells."""
    made = run(
        tree,
        *("-m", "tools.new_exercise", "sum_of_all"),
        *("--chapter", "02", "--after", "average_gradients"),
    )
    assert made.returncode == 0, made.stderr
    cells = nbformat.read(tree / "notebooks/02_distributed_data_parallel.ipynb", 4).cells
    ids = [cell.id for cell in cells]
    place = ids.index("ex-average-gradients-solution")
    assert ids[place + 1 : place + 3] == ["ex-sum-of-all-task", "ex-sum-of-all"]
    headings = [c.source.partition("\n")[0] for c in cells if c.id.endswith("-task")]
    assert "### 2. Sum of all (8 min)" in headings
    assert [int(one[4]) for one in headings] == list(range(1, len(headings) + 1))
    (tree / "judge.py").write_text(JUDGE, encoding="utf-8")
    judged = run(tree, "judge.py")
    expected = ["not attempted", "solved", *5 * ["told"]]
    assert judged.stdout.splitlines() == expected, judged.stdout + judged.stderr


def test_sync_follows_an_edit_and_changes_nothing_twice(tree):
    file = tree / "src/ddp_workbook/exercises/mean_over_ranks.py"
    file.write_text(file.read_text().replace("Each rank holds a number", "Each has a number"))
    assert "renewed" in run(tree, "-m", "tools.new_exercise", "mean_over_ranks", "--sync").stdout
    page = nbformat.read(tree / "notebooks/00_start_here.ipynb", 4)
    assert any("Each has a number" in cell.source for cell in page.cells)
    assert run(tree, "-m", "tools.new_exercise", "mean_over_ranks", "--sync").stdout == ""


def test_any_cells_can_be_tried(tree):
    """Those of a whole file, too, of which each has a title."""
    answers = "tests/wrong_answers/mean_over_ranks.py"
    done = run(tree, "-m", "tools.new_exercise", "mean_over_ranks", "--try", answers)
    titles = (tree / answers).read_text().count("# %% ")
    assert done.stdout.count("Not yet") == titles > 4, done.stdout + done.stderr
    assert not (tree / "work").exists()


def test_an_edit_can_be_tried_and_must_fit_the_solution(tmp_path, capsys):
    fits, elsewhere = tmp_path / "fits.py", tmp_path / "elsewhere.py"
    fits.write_text('edit("dist.all_reduce(total)", "pass")\n')
    elsewhere.write_text('edit("dist.broadcast(total)", "pass")\n')
    new_exercise.main(["mean_over_ranks", "--try", str(fits)])
    assert "Not yet: mean_over_ranks" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"broadcast\(total\)' is not in the solution"):
        new_exercise.main(["mean_over_ranks", "--try", str(elsewhere)])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["average_gradients", "--chapter", "02"], "There is an exercise average_gradients"),
        (["two words", "--chapter", "02"], "cannot be the name of a function"),
        (["another", "--chapter", "12"], "There is no page 12"),
        (
            ["another", "--chapter", "02", "--after", "my_indices"],
            "my_indices belongs to chapter 02",
        ),
        (["another", "--sync"], "There is no exercise another"),
        (["another"], "Give --chapter"),
        (["another", "--try", "x.py"], "There is no exercise called 'another'"),
        (["mean_over_ranks", "--try", "x.py"], "No such file"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(words, told):
    with pytest.raises(SystemExit, match=re.escape(told)):
        new_exercise.main(words)
    assert not list(EXERCISES.glob("another.py")) and not (WRONG / "another.py").exists()
