"""The rules of the tree: who imports whom, what a notebook holds."""

import ast
import json
import re
import subprocess
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import ddp_workbook
from tools.set_up import ROOT

PACKAGE = ROOT / "src" / "ddp_workbook"
SOURCES = sorted(PACKAGE.rglob("*.py"))
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))
CHAPTERS = [path for path in NOTEBOOKS if not path.stem.startswith("00_")]

# part of the package -> the parts that it may import from; every other import is a wrong arrow
MAY_IMPORT = {
    "errors": set(),
    "files": set(),
    "source_tree": set(),
    "rank_colours": set(),
    "digits": set(),
    "results": {"errors"},
    "training_run": {"results", "digits", "errors"},
    "chapters": {"digits", "training_run"},
    "diagnostics": {"errors", "source_tree"},
    "figures": {"files", "rank_colours"},
    "launcher": {"network", "diagnostics", "errors", "rank_colours", "source_tree"},
    "planning": {"errors", "digits"},
    "network": {"planning", "errors"},
    "recording": {"launcher", "network", "diagnostics", "figures", "errors", "files"},
    "checkup": {"recording", "launcher", "network", "diagnostics", "errors"},
    "questions": {"errors"},
    "progress_board": {"errors", "files", "questions"},
}
MAY_IMPORT["notebook"] = {"recording", "figures", "launcher", *MAY_IMPORT["launcher"]}
MAY_IMPORT["notebook"] |= {"progress_board", *MAY_IMPORT["progress_board"]}
MAY_IMPORT["exercises"] = {"notebook", "progress_board", *MAY_IMPORT["notebook"]} - {"figures"}
MAY_IMPORT["experiments"] = {
    "checkup",
    "exercises",
    "chapters",
    "planning",
    "figures",
    "results",
    "digits",
}
MAY_IMPORT["experiments"] |= MAY_IMPORT["exercises"]
MAY_IMPORT["instructor"] = {"exercises", "digits", *MAY_IMPORT["exercises"]}
MAY_IMPORT["testing"] = {"launcher", *MAY_IMPORT["launcher"]}
MAY_IMPORT["program"] = {"errors", "files", "chapters"}
MAY_IMPORT["cli"] = {"checkup", "program", "instructor", "planning", *MAY_IMPORT["instructor"]}


def name(path: Path) -> str:
    """The path as the test's name."""
    return str(path.relative_to(ROOT))


def imports(path: Path, inside: bool = True) -> set[str]:
    """Every name of this package that the file imports, at the top or `inside` a function.

    `ddp_workbook.play` of the front door is the module where `play` is at home.
    """
    found = set()
    package = path.relative_to(ROOT / "src").parent.parts
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if inside else tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            up = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*up, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ddp_workbook":
            found |= {f"ddp_workbook.{ddp_workbook.HOMES.get(node.attr, node.attr)}"}
    return {module for module in found if module.startswith("ddp_workbook.")}


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_arrows_point_one_way(part):
    """A part imports only from itself and the parts named above: none of them knows its users."""
    files = sorted(PACKAGE.glob(f"{part}/**/*.py")) or [PACKAGE / f"{part}.py"]
    arrows = {(name(path), module) for path in files for module in imports(path)}
    allowed = {part, *MAY_IMPORT[part]}
    assert {(path, m) for path, m in arrows if m.split(".")[1] not in allowed} == set()


def test_every_part_has_its_row():
    """A new folder or module says above what it may import, and no two parts import each other."""
    ours = ("__init__", "__pycache__")
    assert {path.stem for path in PACKAGE.iterdir() if path.stem not in ours} == set(MAY_IMPORT)
    assert {
        (one, two) for one in MAY_IMPORT for two in MAY_IMPORT[one] if one in MAY_IMPORT[two]
    } == set()


def test_no_two_modules_import_each_other():
    """Neither directly nor around a corner, by imports at their top."""
    modules = {".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in SOURCES}
    graph = {}
    for path in SOURCES:
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        found = imports(path, inside=False)
        parents = {name.rpartition(".")[0] for name in found}  # from module import function
        graph[module] = (found | parents) & modules
    TopologicalSorter(graph).prepare()  # raises CycleError, which names them


def test_the_picture_of_the_parts_is_true():
    """CONTRIBUTING's has each of them, and no arrow leads up."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    picture = re.search(r"(?s)```\n(notebooks/.*?)```", text)[1]
    lines = [re.match(r"[│ ]*[├└]─ ((?:\w+(?:/|\.py) *)+)", line) for line in picture.splitlines()]
    levels = {
        one: level
        for level, line in enumerate(lines)
        for one in re.findall(r"(\w+)(?:/|\.py)", line[1] if line else "")
    }
    assert levels.keys() == MAY_IMPORT.keys()
    up = [(one, two) for one in MAY_IMPORT for two in MAY_IMPORT[one] if levels[one] > levels[two]]
    assert up == []


def test_no_test_imports_from_another():
    """What several need is a fixture of conftest.py or a module named after what it is."""
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        modules = re.findall(
            r"(?m)^ *(?:from|import) (tests\.(?:\w+\.)*test_\w+)", path.read_text()
        )
        found |= {(path.stem, module) for module in modules}
    assert found == set()


# Notebooks


@cache
def notebook(path: Path) -> dict:
    """The notebook as JSON."""
    return json.loads(path.read_text(encoding="utf-8"))


def source(cell: dict) -> str:
    """A cell's text."""
    return "".join(cell["source"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_notebook_is_committed_clean(path):
    """No outputs, no counts, the kernel that everybody has, and ids that diffs can follow."""
    cells = notebook(path)["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    kept = [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None]
    assert kept == []
    assert notebook(path)["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in cells]
    assert len(set(ids)) == len(ids)
    assert [word for word in ids if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", word)] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_formulas_are_plain_text(path):
    """Typeset ones need a script from the network in the pages of `make book`."""
    cells = [cell for cell in notebook(path)["cells"] if cell["cell_type"] == "markdown"]
    prose = [re.sub(r"(?s)```.*?```|`[^`]*`", "", source(cell)) for cell in cells]
    assert [text for text in prose if re.search(r"\$[^$\s][^$]*\$|\\[(\[]", text)] == []


@pytest.mark.parametrize("path", CHAPTERS, ids=name)
def test_one_stem_a_chapter(path):
    """04_samplers.ipynb has chapters/samplers.py; 04_further_<topic>.ipynb stands beside it."""
    assert path.stem[:2].isdigit()
    assert (PACKAGE / "chapters" / f"{chapter_of(path)}.py").is_file()


def chapter_of(path: Path) -> str:
    """The stem of the chapter that a page belongs to, by its number."""
    core = [p.stem for p in NOTEBOOKS if p.stem[:2] == path.stem[:2] and "_further_" not in p.stem]
    assert len(core) == 1, f"chapter {path.stem[:2]} has the core pages {core}"
    return core[0][3:]


def test_figures_belong_to_a_chapter():
    """figs/<stem>_*.svg; readme.svg is the README's."""
    stems = tuple(path.stem.partition("_")[2] + "_" for path in NOTEBOOKS)
    figures = [path.name for path in ROOT.glob("figs/*") if path.name != "readme.svg"]
    assert [figure for figure in figures if not figure.startswith(stems)] == []


# The repository


def test_no_made_file_is_committed():
    """What Python, Jupyter and the reader make stays out of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-i", "-c", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert listed.stdout == ""
