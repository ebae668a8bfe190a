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

PARTS = ("src", "tools", "notebooks", "tests", "benchmarks")


@pytest.fixture
def tree(tmp_path) -> Path:
    """A copy of what the tool reads and writes."""
    for part in PARTS:
        ignored = shutil.ignore_patterns("__pycache__", "work", ".ipynb_checkpoints")
        shutil.copytree(ROOT / part, tmp_path / part, ignore=ignored)
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, tmp_path)
    return tmp_path


def run(tree: Path, *words: str) -> str:
    """What Python says in that copy."""
    environment = os.environ | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    line = [sys.executable, *words]
    result = subprocess.run(line, cwd=tree, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.push("a new exercise from its first minute")
def test_a_new_exercise_is_whole_from_the_first_minute(tree):
    """Here the page's first: heading and imports come with it. All tests of an exercise pass."""
    run(tree, "-m", "tools.new_exercise", "sum_of_all", "--page", "03_further_stores")
    cells = nbformat.read(tree / "notebooks/further/03_further_stores.ipynb", 4).cells
    assert "exercises 8 min" in cells[0].source
    own = [f"ex-sum-of-all{part}" for part in ("-task", "", "-hint", "-solution")]
    assert [cell.id for cell in cells][-8:] == [
        "network-look",
        "exercises",
        *own,
        "end",
        "progress",
    ]
    assert cells[-2].source.startswith("## Common mistakes")
    (imports,) = [cell.source for cell in cells if cell.id == "imports"]
    assert re.search(r"from ddp_workbook import hint, .*, solution", imports)
    tests = (
        "tests/judging/test_exercises.py",
        "tests/course/test_guide.py",
        "-k",
        "sum_of_all or as_computed",
    )
    assert " passed" in run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)


@pytest.mark.push("a new exercise from its first minute")
def test_what_follows_from_an_exercise_is_written_everywhere(tree):
    """A chapter's number is its own page; numbers, minutes, sums and the clock follow an edit."""
    new = ("-m", "tools.new_exercise", "sum_of_all", "--chapter", "03", "--after", "where_is")
    run(tree, *new, "--minutes", "2")
    file = tree / "src/ddp_workbook/exercises/process_groups/sum_of_all.py"
    edited = file.read_text().replace("One sentence that", "A sentence which")
    file.write_text(edited.replace("MINUTES = 2", "MINUTES = 3"))
    output = run(tree, "-m", "tools.new_exercise", "--sync")
    files = ["README.md", "notebooks/03_process_groups.ipynb", "notebooks/README.md"]
    assert sorted({line.split()[-1] for line in output.splitlines()}) == files
    cells = nbformat.read(tree / files[1], 4).cells
    tasks = [cell.source.splitlines()[:2] for cell in cells if cell.id.endswith("-task")]
    assert [task[0][:6] for task in tasks] == ["### 1.", "### 2.", "### 3."]
    assert tasks[1] == ["### 2. Sum of all (3 min)", "A sentence which says what to do."]
    before, after = ((one / "notebooks/README.md").read_text() for one in (ROOT, tree))
    row = re.compile(r"(?s)### Half a day.*?\[03 .*? \| (\d+) \| (\d+) \|")
    shorter, longer = row.search(before), row.search(after)
    assert (shorter[1], int(shorter[2]) + 3) == (longer[1], int(longer[2]))
    ends = [re.findall(r"\| (\d):(\d\d) \| \*\*End", text) for text in (before, after)]
    late = [
        60 * (int(b[0]) - int(a[0])) + int(b[1]) - int(a[1]) for a, b in zip(*ends, strict=True)
    ]
    assert late[0] == late[3] == 0 and {*late[1:3]} <= {3, 4}, "and a tenth to spare"
    assert run(tree, "-m", "tools.new_exercise", "--sync") == ""


def test_any_cells_can_be_tried(tmp_path, monkeypatch, capsys):
    """A cell as a reader has it, and a file of several, of which each has a title."""
    monkeypatch.chdir(tmp_path)
    Path("one.py").write_text("%%exercise mean_over_ranks\ndef mean_over_ranks(value):\n    pass\n")
    Path("two.py").write_text(
        '# %% left\nedit("total.item()", "value")\n\n\n# %% right\nbody("")\n'
    )
    new_exercise.main(["mean_over_ranks", "--try", "one.py", "two.py"])
    output = capsys.readouterr().out
    assert output.count("Not yet: mean_over_ranks") == 3 and "--- two.py: right\n" in output
    assert not Path("work").exists()


LONG = ["another", "--minutes", "25"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["average_gradients", "--page", "02"], "There is an exercise average_gradients"),
        (["two words", "--page", "02"], "cannot be the name of a function"),
        (["another", "--page", "sampler"], "no page called 'sampler'. Did you mean samplers?"),
        (["another", "--page", "02", "--after", "my_indices"], "is not on 02_distributed_data"),
        ([*LONG, "--page", "00"], "The plan 'Half a day' would end"),
        ([*LONG, "--page", "00"], "In no plan are: 01_further_inside_data_parallel, "),
        (["another", "--page", "further_stores", "--minutes", "40"], "a page may take 50"),
        (["another"], "Give --page"),
        (["another", "--try", "x.py"], "There is no exercise called 'another'"),
        (["mean_over_ranks", "--try", "x.py"], "No such file"),
        (["mean_over_ranks", "--try", "elsewhere.py"], "broadcast(total)' is not in the solution"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(words, message, tmp_path, monkeypatch):
    """Also what would make a page or a plan too long: before, and not after."""
    monkeypatch.chdir(tmp_path)
    Path("elsewhere.py").write_text('edit("dist.broadcast(total)", "pass")\n')
    with pytest.raises(SystemExit, match=re.escape(message)):
        new_exercise.main(words)
    assert not [*EXERCISES.rglob("another.py")] and not (WRONG / "another.py").exists()
