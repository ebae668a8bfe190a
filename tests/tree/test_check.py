"""`make check`: what has changed, and which tests need it."""

import subprocess
from pathlib import Path

import pytest

from tools import check

TREE = {
    "src/ddp_workbook/__init__.py": "",
    "src/ddp_workbook/inner.py": "ONE = 1\n",
    "src/ddp_workbook/outer.py": "def two():\n    from .inner import ONE\n    return ONE + 1\n",
    "src/ddp_workbook/demos/__init__.py": "__getattr__ = subjects(__name__)\n",
    "src/ddp_workbook/demos/shown.py": "import ddp_workbook.outer\n",
    "src/ddp_workbook/exercises/demos/half.py": "\n",
    "tests/test_inner.py": "from ddp_workbook import inner\n",
    "tests/test_outer.py": "from ddp_workbook.outer import two\n",
    "tests/test_table.py": "TABLE = 'table.csv'\n",
    "tests/test_alone.py": "this is not finished(\n",
    "tests/browser/test_page.py": 'from ddp_workbook import inner\n\npytestmark = mark.push("x")\n',
    "data/table.csv": "1\n",
    "notebooks/01_page.ipynb": '{"cells": [{"cell_type": "code", "source": ["%load_ext x\\n", '
    '"from ddp_workbook import demos"]}, {"cell_type": "code", "source": ["%%exercise half\\n"]}]}',
}
PAGE, HALF = {"01_page": "tests/course/test_notebooks.py"}, {"half": check.EXERCISES}
WRONG = {"half": check.WRONG_ANSWERS}


@pytest.fixture
def tree(tmp_path):
    """A small checkout, without git."""
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def git(tree):
    """Call with the words of a git command; the tree is committed on the branch main."""

    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(
            ["git", *who, *words], cwd=tree, capture_output=True, check=words[0] != "merge"
        )

    git("init", "-b", "main")
    git("add", "-A")
    git("commit", "-m", "all")
    return git


def choose(graph: check.Graph, paths: list[str]):
    """What a change of these files needs."""
    return check.choose_tests(graph.dependents(paths), graph.for_a_push())


@pytest.mark.parametrize(
    ("path", "near", "parts", "left"),
    [
        ("src/ddp_workbook/outer.py", ["outer"], PAGE, []),
        ("src/ddp_workbook/inner.py", ["inner", "outer"], PAGE, ["tests/browser/test_page.py"]),
        ("src/ddp_workbook/exercises/demos/half.py", [], HALF | PAGE, []),
        ("tests/wrong_answers/half.py", [], WRONG, []),
        ("notebooks/01_page.ipynb", [], PAGE, []),
        ("data/table.csv", ["table"], {}, []),
        ("tests/test_alone.py", ["alone"], {}, []),
        ("README.md", [], {}, []),
    ],
)
def test_what_a_change_needs(tree, path, near, parts, left):
    """By imports, in functions too, through a chapter's demonstrations, and by a file's name."""
    found = choose(check.Graph(tree), [path])
    assert [list(found[0]), *found[1:]] == [[f"tests/test_{n}.py" for n in near], parts, left]


def test_far_tests_are_left_out_and_counted(tree):
    """A change that everything needs; the nearest come first."""
    for number in range(20):
        (tree / f"tests/test_far_{number}.py").write_text("import ddp_workbook.outer\n")
    near, parts, left = choose(check.Graph(tree), ["src/ddp_workbook/inner.py"])
    assert next(iter(near)) == "tests/test_inner.py"
    assert len(near) == check.MAX_FILES
    words = "\n".join(check.choice(["inner.py"], "since then", [], near, parts, left))
    assert f"and {len(left) - 5} more" in words
    assert "tests/test_inner.py: it uses src/ddp_workbook/inner.py" in words


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("src/manyranks/launcher/rank.py", "manyranks/launcher"),
        ("src/manyranks/diagnostics/advice.py", "manyranks/launcher"),
        ("src/ddp_workbook/chapters/samplers.py", "course/samplers"),
    ],
)
def test_tests_of_the_subject_come_first(tree, path, folder):
    """Although another is as near, and stands first in the alphabet."""
    for name in ("aaa", folder):
        (tree / "tests" / name).mkdir(parents=True, exist_ok=True)
        text = f"import {check.module(path)}\n"
        (tree / f"tests/{name}/test_{Path(name).name}.py").write_text(text)
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_text("")
    near, _, _ = choose(check.Graph(tree), [path])
    assert [str(Path(name).parent) for name in near] == [f"tests/{folder}", "tests/aaa"]


def test_a_deleted_module_is_missed_by_those_that_import_it(tree, git):
    """Deleted in a commit of this branch; new and changed files count without a commit."""
    git("switch", "-c", "mine")
    git("rm", "src/ddp_workbook/inner.py")
    git("commit", "-m", "less")
    (tree / "tests/test_new.py").touch()
    paths, words = check.changed_files(tree)
    assert (paths, words) == (
        ["src/ddp_workbook/inner.py", "tests/test_new.py"],
        "since the branch left main",
    )
    near, _, _ = choose(check.Graph(tree, deleted=paths[:1]), paths)
    assert set(near) == {f"tests/test_{name}.py" for name in ("new", "inner", "outer")}
    lines = list(check.choice(paths, words, paths[:1], near, {}, []))
    assert lines[1].endswith("inner.py, which is deleted: what imported it is tested")


def test_a_merge_with_a_conflict_is_named(tree, git):
    """Nothing is chosen from a file with two versions."""
    for branch in ("one", "other"):
        git("switch", "-c", branch, "main")
        (tree / "data/table.csv").write_text(branch)
        git("commit", "-am", branch)
    git("merge", "one")
    with pytest.raises(SystemExit, match=r"conflicts in data/table\.csv"):
        check.changed_files(tree)


def test_outside_git_it_is_said(tree, monkeypatch):
    """A downloaded copy, also inside another checkout's folder; then only the rules are checked."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tree.parent))
    paths, words = check.changed_files(tree)
    assert paths is None
    lines = list(check.choice(paths, words, [], {}, {}, []))
    assert "no git checkout" in lines[0]
    assert "the rules of the tree" in lines[1]
