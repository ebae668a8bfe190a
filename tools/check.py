"""`make check`: lint, types, and the tests that the changed files need; two minutes at most.

A file needs a test if the test imports it, or imports what imports it. The tests in the folder of
what has changed run first, then the nearest; after a minute and a half no further one begins. What
was chosen, why, and what is left to `make test` is said in words.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from manyranks.diagnostics.parsing import parse_source
from manyranks.lazy_names import homes_in
from tests.levels import level_of_file
from tools.set_up import ROOT

BUDGET_S = 90  # from the start; a test that has begun ends, which can take the last half minute
MAX_FILES, MAX_PARTS = 12, 4  # so many test files, and so many pages and exercises: the nearest
FOLDERS = ("src", "tests", "tools", "benchmarks")
BASES = ("origin/main", "main")  # what a branch is compared with
# The rules of the tree and of its pages: seconds, whatever has changed
RULES = (
    "tests/tree/test_layout.py",
    "tests/course/test_pages.py",
    "tests/course/test_lessons.py",
    "tests/course/test_guide.py",
    "tests/tree/test_contributing.py",
)
EXERCISES = "tests/judging/test_exercises.py"
WRONG_ANSWERS = "tests/judging/test_wrong_answers.py"
TESTS_OF = {  # folder -> the file that tests each name in it
    "notebooks/": "tests/course/test_notebooks.py",
    "ddp_workbook/exercises/": EXERCISES,
    "tests/wrong_answers/": WRONG_ANSWERS,
    "tests/right_answers/": "tests/judging/test_right_answers.py",
    "tests/doctor_scripts/": "tests/manyranks/script_doctor/test_doctor_scripts.py",
}
SUBJECTS = {  # what has changed -> the folder of its tests, where that is called otherwise
    "diagnostics": "launcher",
    "room_client": "workshop",
    "tools": "tree",
    "benchmarks": "tree",
}
NO_TESTS = 5  # exit code of pytest, as where all that was chosen is left out for time
CHECKS = (  # each says by itself what is wrong
    ("lint", "-m", "ruff", "check", "-q", "."),
    ("format", "-m", "ruff", "format", "-q", "--check", "."),
)


# What has changed


def git(*words: str, root: Path = ROOT) -> list[str] | None:
    """The lines that git prints, None if it fails, as outside a repository."""
    try:
        result = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return None if result.returncode else result.stdout.splitlines()


def changed_files(root: Path = ROOT) -> tuple[list[str] | None, str]:
    """Paths that differ from the base branch, deleted ones included, and the words for it.

    None where git cannot tell. SystemExit names the files of a merge with conflicts.
    """
    if git("rev-parse", "HEAD", root=root) is None:
        return None, "This is no git checkout with a commit, so what has changed is not known."
    if conflicts := git("diff", "--name-only", "--relative", "--diff-filter=U", root=root):
        files = ", ".join(sorted(set(conflicts)))
        sys.exit(f"Nothing was run: a merge has conflicts in {files}. Resolve them first.")
    base, words = "HEAD", "since the last commit"
    for name in BASES:
        if base_commits := git("merge-base", "HEAD", name, root=root):
            base, words = base_commits[0], f"since the branch left {name}"
            break
    modified = git("diff", "--name-only", "--relative", "--no-renames", base, root=root) or []
    new = git("ls-files", "--others", "--exclude-standard", root=root) or []
    return sorted({*modified, *new}), words


# Who imports whom


class Graph:
    """The imports between the modules, pages and tests of a checkout, by path from its root."""

    def __init__(self, root: Path = ROOT, deleted: Iterable[str] = ()):
        files = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*.py"))]
        files += sorted(root.glob("notebooks/*.ipynb")) + sorted(root.glob("notebooks/*/*.ipynb"))
        self.texts = {
            path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in files
        }
        self.modules = {module(path): path for path in [*self.texts, *deleted]}
        self.lazy_names = {
            module(path): homes_in(text)
            for path, text in self.texts.items()
            if "lazy_names(__name__" in text
        }
        self.users = defaultdict(set)  # path -> paths of those that import it
        for path, text in self.texts.items():
            for used in self._used(path, text):
                self.users[used].add(path)

    def _used(self, path: str, text: str) -> Iterator[str]:
        """The files that this file imports; a page also uses its exercises' files."""
        for name in imported_names(path, text):
            head, _, last = name.rpartition(".")
            if last in (homes := self.lazy_names.get(head, {})):
                name = homes[last]
            file = self.modules.get(name) or self.modules.get(head)
            if file:
                yield file
                if "= subjects(__name__)" in self.texts.get(file, ""):  # it imports them by name
                    yield from (module for module in self.texts if is_beside(file, module))
        for name in re.findall(r"%%exercise (\w+)", text):
            yield from (file for file in self.texts if is_exercise(file, name))

    def dependents(self, paths: Iterable[str]) -> dict[str, list[str]]:
        """Who needs these files: path -> the way from it to the change, the nearest first."""
        ways = {path: [path] for path in paths}
        for path in list(ways):
            if not path.endswith((".py", ".ipynb", ".md")):  # data, scripts: who names it uses it
                name = Path(path).name
                self.users[path] |= {user for user, text in self.texts.items() if name in text}
        queue = list(ways)
        for path in queue:  # grows
            for user in sorted(self.users[path] - ways.keys()):
                ways[user] = [user, *ways[path]]
                queue.append(user)
        return ways

    def for_a_push(self) -> set[str]:
        """The files of tests that `make test` leaves out as a whole."""
        return {path for path, text in self.texts.items() if level_of_file(text)[0]}

    def needs(self, paths: Iterable[str]) -> set[str]:
        """These files, and all that they import, directly or not."""
        uses = defaultdict(set)
        for used, users in self.users.items():
            for user in users:
                uses[user].add(used)
        queue = list(paths)
        for path in queue:  # grows
            queue += sorted(uses[path] - set(queue))
        return set(queue)


def module(path: str) -> str:
    """The name under which a file is imported."""
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def is_beside(package: str, path: str) -> bool:
    """Whether a module lies in the folder of this `__init__.py`."""
    return Path(path).parent == Path(package).parent and path != package


def is_exercise(path: str, name: str) -> bool:
    """Whether it is the file of this exercise, in the folder of its chapter."""
    return bool(re.fullmatch(rf"src/ddp_workbook/exercises/\w+/{name}\.py", path))


def imported_names(path: str, text: str) -> Iterator[str]:
    """Full names of all that a file imports, wherever it does; nothing if it is no Python."""
    if path.endswith(".ipynb"):
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        sources = [re.sub(r"(?m)^[%!].*$", "", "".join(cell["source"])) for cell in cells]
    else:
        sources = [text]
    package = module(path).split(".")
    package = package if path.endswith("__init__.py") else package[:-1]
    for source in sources:
        try:
            tree = parse_source(source)
        except SyntaxError:  # a cell or a file that is wrong on purpose, or not finished
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                up = package[: len(package) - node.level + 1] if node.level else []
                whole = ".".join([*up, *([node.module] if node.module else [])])
                yield from (f"{whole}.{alias.name}" for alias in node.names)


# What is run


def choose_tests(
    ways: dict[str, list[str]], for_a_push: Container[str] = ()
) -> tuple[dict[str, list[str]], dict[str, str], list[str]]:
    """(test files, parts of files that test many pages or exercises, what is left out).

    Tests in the folder of what has changed come first. The first gives each file's way to the
    change; the second the file that tests each part, which is a name for -k. Files `for_a_push` run
    only if they have changed themselves.
    """
    near, parts, rest = {}, {}, []
    for path, way in sorted(ways.items(), key=lambda item: not is_of(item[0], item[1][-1])):
        name = Path(path).stem
        if path.startswith("tests/") and name.startswith("test_"):
            far = len(near) == MAX_FILES or path in for_a_push
            if way[1:] and (far or path == EXERCISES):
                rest.append(path)
            elif path not in RULES:
                near[path] = way
        elif test_file := next((test for folder, test in TESTS_OF.items() if folder in path), None):
            if len(parts) == MAX_PARTS:
                rest.append(path)
            elif name != "__init__":
                parts[name] = test_file
    return near, parts, rest


def is_of(test: str, path: str) -> bool:
    """Whether a test lies in the folder that has the name of what has changed."""
    names = {SUBJECTS.get(part, part) for part in Path(path).with_suffix("").parts}
    return test.startswith("tests/") and Path(test).parent.name in names - {"tests"}


def pytest_line(*words: str) -> list[str]:
    """A pytest run that says what failed, and no more."""
    return [sys.executable, "-m", "pytest", "-q", "-n2", "--dist=loadfile", "-rfE", *words]


def main() -> int:
    """Choose, say what was chosen, run it; 0 if nothing is wrong."""
    until = time.time() + BUDGET_S
    paths, words = changed_files()
    deleted = [path for path in paths or [] if not (ROOT / path).exists()]
    graph = Graph(deleted=deleted)
    ways = graph.dependents(paths or [])
    there = {path: way for path, way in ways.items() if path not in deleted}
    near, parts, rest = choose_tests(there, graph.for_a_push())
    print("\n".join(choice(paths, words, deleted, near, parts, rest)), flush=True)
    failed = [name for name, *line in CHECKS if subprocess.call([sys.executable, *line], cwd=ROOT)]
    if wrong_types(paths):
        failed.append("types")
    runs = [pytest_line(*RULES, *near)]
    if parts:  # what most changes are about, so it runs first
        files = {*parts.values()}
        if EXERCISES in files:
            files.add(WRONG_ANSWERS)
        runs.insert(0, pytest_line(*sorted(files), "-k", " or ".join(sorted(parts))))
    env = os.environ | {"WORKBOOK_UNTIL": str(until)}
    for number, run in enumerate(runs):
        if time.time() < until or number == 0:
            end = subprocess.call(run, cwd=ROOT, env=env)
            if end not in (0, NO_TESTS):
                failed.append("tests")
    if time.time() > until:
        print("The time is over: `make test` runs what was skipped, and what did not begin.")
    print(f"Wrong: {', '.join(failed)}." if failed else "Nothing wrong here. `make test` is next.")
    return bool(failed)


def choice(
    paths: list[str] | None,
    words: str,
    deleted: list[str],
    near: dict[str, list[str]],
    parts: dict[str, str],
    rest: list[str],
) -> Iterator[str]:
    """Lines that say what is run and why."""
    always = "Run in any case: lint, format, types, and the rules of the tree and of its pages."
    if not paths:
        yield words if paths is None else f"Nothing has changed {words}."
        yield always
        return
    yield f"Changed {words}:"
    for path in paths:
        suffix = ", which is deleted: what imported it is tested" if path in deleted else ""
        yield f"  {path}{suffix}"
    yield always
    yield "Tests of the change, the nearest first; none begins after 90 seconds:"
    for path, way in near.items():
        yield f"  {path}: {' uses '.join(['it', *way[1:]]) if way[1:] else 'it has changed'}"
    for name, test in sorted(parts.items()):
        yield f"  {test} -k {name}"
    if rest:
        files = first_five(rest)
        yield f"Left to `make test` and `make test-push`, farther from the change: {files}"


def wrong_types(paths: list[str] | None) -> bool:
    """Print what mypy says of these files, or of all; whether it is anything.

    What it says of others is counted: as long as the tree is not clean, it is not this change's.
    """
    line = [sys.executable, "-m", "mypy", "--no-error-summary"]
    lines = subprocess.run(line, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    own = [text for text in lines if paths is None or text.partition(":")[0] in paths]
    print("\n".join(own) or "types: nothing wrong in what has changed", flush=True)
    if others := sum(" error: " in text for text in lines) - sum(
        " error: " in text for text in own
    ):
        print(f"types: {others} errors in files that have not changed (python -m mypy lists them)")
    return bool(own)


def first_five(paths: list[str]) -> str:
    """Up to five of these, and how many more."""
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return ", ".join(paths[:5]) + more


if __name__ == "__main__":
    sys.exit(main())
