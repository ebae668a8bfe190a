"""The rules of the tree: who imports whom, what a notebook holds."""

import ast
import json
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from ddp_workbook.page.pages import all_pages
from manyranks.lazy_names import homes_in
from tools.set_up import ROOT

SRC = ROOT / "src"
SOURCES = sorted(SRC.rglob("*.py"))
NOTEBOOKS = all_pages()
CHAPTERS = [path for path in NOTEBOOKS if not path.stem.startswith("00_")]

# part of a package -> the parts of it that it may import from; every other import is a wrong arrow
WORKBENCH = {
    "wrapping": set(),
    "errors": {"wrapping"},
    "files": set(),
    "rank_colours": set(),
    "lazy_names": set(),
    "command_line": {"errors"},
    "figures": {"lazy_names", "files", "rank_colours"},
    "diagnostics": {"errors"},
    "planning": {"command_line", "errors"},
    "network": {"planning", "errors"},
    "cpu_for_gpus": {"diagnostics"},
    "launcher": {"cpu_for_gpus", "network", "diagnostics", "rank_colours", "errors"},
    "recording": {
        "launcher",
        "network",
        "diagnostics",
        "figures",
        "command_line",
        "files",
        "errors",
    },
    "script_doctor": {
        "recording",
        "launcher",
        "cpu_for_gpus",
        "network",
        "diagnostics",
        "command_line",
        "errors",
    },
    "testing": {"launcher", "script_doctor", "errors"},
    "cli": {"script_doctor", "recording", "planning", "command_line"},
}
COURSE = {  # each may import from the workbench, too
    "former_names": set(),
    "chapters": set(),
    "page": set(),
    "judging": {"page"},
    "exercises": {"judging"},
    "experiments": {"chapters", "exercises", "page", "judging", "former_names"},
    "program": {"chapters"},
    "workshop": {"chapters", "exercises", "page", "judging"},
    "cli": {"program", "workshop"},
}
PACKAGES = {"manyranks": WORKBENCH, "ddp_workbook": COURSE}
PARTS = [(package, part) for package, parts in PACKAGES.items() for part in parts]


def name(path: Path) -> str:
    """The path as the test's name."""
    return str(path.relative_to(ROOT))


def imports(path: Path, inside: bool = True) -> set[str]:
    """Every name of the two packages that the file imports, at the top or `inside` a function.

    `ddp_workbook.play` of the front door is the module where `play` is at home.
    """
    names = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if inside else tree.body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ddp_workbook":
            names |= {HOMES.get(node.attr, f"ddp_workbook.{node.attr}")}
    return {
        module
        for module in names
        if module.startswith(tuple(f"{package}." for package in PACKAGES))
    }


HOMES = homes_in((SRC / "ddp_workbook" / "__init__.py").read_text(encoding="utf-8"))


def files_of(package: str, part: str) -> list[Path]:
    """The part's modules."""
    return sorted(SRC.glob(f"{package}/{part}/**/*.py")) or [SRC / package / f"{part}.py"]


@pytest.mark.parametrize(("package", "part"), PARTS)
def test_arrows_point_one_way(package, part):
    """A part imports only from itself and the parts named above: none of them knows its users."""
    allowed = {(package, one) for one in (part, *PACKAGES[package][part])}
    if package == "ddp_workbook":
        allowed |= {("manyranks", one) for one in WORKBENCH}
    arrows = {(name(path), module) for path in files_of(package, part) for module in imports(path)}
    assert {(path, m) for path, m in arrows if tuple(m.split(".")[:2]) not in allowed} == set()


@pytest.mark.parametrize("part", ["judging", "exercises"])
def test_ranks_that_judge_draw_nothing(part):
    """A rank of a check would pay for the pictures."""
    names = set().union(*map(imports, files_of("ddp_workbook", part)))
    assert [one for one in names if one.startswith("manyranks.figures")] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_part_has_its_row(package):
    """A new folder or module says above what it may import, and no two parts import each other."""
    parts, ours = PACKAGES[package], ("__init__", "__pycache__", "py")  # py.typed
    assert {path.stem for path in (SRC / package).iterdir() if path.stem not in ours} == set(parts)
    assert {(one, two) for one in parts for two in parts[one] if one in parts[two]} == set()


def test_no_two_modules_import_each_other():
    """Neither directly nor around a corner, whether at their top or in a function."""
    modules = {module_name(path) for path in SOURCES}
    graph = {}
    for path in SOURCES:
        if path.stem != "__init__":  # a door leads everywhere
            names = imports(path)
            parents = {name.rpartition(".")[0] for name in names}  # from module import function
            graph[module_name(path)] = (names | parents) & modules
    TopologicalSorter(graph).prepare()  # raises CycleError, which names them


def module_name(path: Path) -> str:
    """The name under which a file is imported."""
    return ".".join(path.relative_to(SRC).with_suffix("").parts)


def test_the_workbench_stands_alone():
    """All of it is imported without the course, JupyterLab or a picture's matplotlib."""
    modules = [module_name(path) for path in SOURCES if path.is_relative_to(SRC / "manyranks")]
    modules = [module.removesuffix(".__init__") for module in modules]
    foreign = ("ddp_workbook", "jupyterlab", "IPython", "ipywidgets", "nbclient", "nbformat")
    code = f"""
import importlib, sys
for name in {foreign}:
    sys.modules[name] = None
for name in {[module for module in modules if ".figures." not in module]}:
    importlib.import_module(name)
print("matplotlib" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("False\n", "")


def test_the_picture_of_the_parts_is_true():
    """CONTRIBUTING's has each of them, and no arrow leads up."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for package, parts in PACKAGES.items():
        picture = re.search(rf"(?s)```\nsrc/{package}/\n(.*?)```", text)[1]
        lines = [re.match(r" *((?:\w+(?:/|\.py) *)+)", line) for line in picture.splitlines()]
        levels = {
            one: level
            for level, line in enumerate(lines)
            for one in re.findall(r"(\w+)(?:/|\.py)", line[1] if line else "")
        }
        assert levels.keys() == parts.keys()
        up = [(one, two) for one in parts for two in parts[one] if levels[one] > levels[two]]
        assert up == []


def test_no_test_imports_from_another():
    """What several need is a fixture of conftest.py or a module named after what it is."""
    result = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        modules = re.findall(
            r"(?m)^ *(?:from|import) (tests\.(?:\w+\.)*test_\w+)", path.read_text()
        )
        result |= {(path.stem, module) for module in modules}
    assert result == set()


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
    dirty_cells = [
        cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None
    ]
    assert dirty_cells == []
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
    assert (SRC / "ddp_workbook" / "chapters" / f"{chapter_of(path)}.py").is_file()


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
