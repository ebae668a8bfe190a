"""Whose code a file is: the reader's own (a cell, a chapter, a script), or a library's.

A folder tells it. What pip has installed is a library's, wherever the folder is: in an environment,
in the user's site, in a cluster's module, by `pip install --target`. So is what comes through
PYTHONPATH from outside the reader's project. All else is the reader's own, also a package that is
installed editable: its files are where somebody edits them.
"""

import functools
import os
import re
import sys
import sysconfig
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

PACKAGE_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")  # this package
LIBRARIES = tuple(
    os.path.join(folder, "")
    for folder in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *(getattr(find_spec("torch"), "submodule_search_locations", None) or ()),
    }
)
SITE_PACKAGES = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
PROJECT = (".git", "pyproject.toml")  # what the topmost folder of a project holds

CELL = re.compile(r"cell_[0-9a-f]{8}\.py$")  # as a page names the files of its cells
HIDDEN_FOLDERS = [PACKAGE_FOLDER]  # folders whose frames no report shows
OWN_FOLDERS = [
    PACKAGE_FOLDER
]  # folders of packages that are no libraries, wherever they are installed
DISPLAY_NAMES: dict[str, str] = {}  # file -> its name in reports
FINISHED_WAITS: set[tuple[str, str]] = set()  # (file, function) in which a finished rank waits
BASE_FOLDER = [os.curdir]  # the folder from which files are named
WORKER_FOLDERS: set[str] = set()  # folders of the workers that this kernel has launched


def hide(*folders: str) -> None:
    """Make the reports of this process leave out frames of files below these folders."""
    HIDDEN_FOLDERS.extend(
        os.path.join(folder, "")
        for folder in folders
        if os.path.join(folder, "") not in HIDDEN_FOLDERS
    )


def count_as_own(folder: str) -> None:
    """Make files below `folder` count as the reader's own, also where it is installed by pip."""
    OWN_FOLDERS.append(os.path.join(folder, ""))


def mark_finished_wait(function: Callable) -> Callable:
    """Make a rank inside this function count as one that has returned."""
    FINISHED_WAITS.add((function.__code__.co_filename, function.__name__))
    return function


def set_display_name(file: str, name: str) -> None:
    """Make the reports of this process call `file` by this name."""
    DISPLAY_NAMES[file] = name


def add_worker(file: str | None) -> None:
    """Make the project around a worker's file count as the reader's own."""
    if not file or file.startswith(tuple(OWN_FOLDERS)):
        return
    folder = os.path.dirname(os.path.realpath(file))
    if folder not in WORKER_FOLDERS:
        WORKER_FOLDERS.add(folder)
        _is_installed.cache_clear()


def is_library(file: str) -> bool:
    """True for a file of Python, torch or another installed package, except what readers read."""
    if file.startswith(tuple(OWN_FOLDERS)):
        return False
    if file.startswith(LIBRARIES):
        return True
    try:
        here = os.getcwd()
    except OSError:  # the current folder is gone
        here = ""
    return _is_installed(file, here)


@functools.cache
def _is_installed(file: str, here: str) -> bool:
    """True for a file of a package that pip has installed, or that came through PYTHONPATH.

    Kept, because it is asked for each frame of each call that a rank has recorded. `here` is the
    current folder; the nearest folder around the file that says anything decides.
    """
    if SITE_PACKAGES.search(file):  # before links are followed: some installers only make links
        return True
    own = set()  # the current folder, those of the workers, and the project around each
    for start in map(Path, filter(None, (here, *WORKER_FOLDERS))):
        around = (start, *start.parents)
        projects = (parent for parent in around if any(os.path.exists(parent / p) for p in PROJECT))
        own |= {start, next(projects, start)}
    # An empty entry is the current folder.
    on_path = {_real(folder) for folder in sys.path if folder}
    pythonpath = {_real(f) for f in os.environ.get("PYTHONPATH", "").split(os.pathsep) if f}
    for folder in _real(file).parents:
        if folder in own:
            return False
        if folder in on_path and next(folder.glob("*.dist-info"), None):  # pip's own folder
            return True
        if folder in pythonpath and not any(
            folder.is_relative_to(project) or project.is_relative_to(folder) for project in own
        ):
            return True
    return False


def _real(path: str) -> Path:
    try:
        return Path(os.path.realpath(path))
    except OSError:  # it is relative, and the current folder is gone
        return Path(path)


def is_machinery(file: str) -> bool:
    """True for a file of the workbook that no report shows."""
    return file.startswith(tuple(HIDDEN_FOLDERS))


def is_own(file: str) -> bool:
    """True for a file that the reader wrote or reads: not a library, machinery or `<…>`."""
    return not file.startswith("<") and not is_machinery(file) and not is_library(file)


def package(file: str) -> str:
    """The top-level package or module that a library's file belongs to."""
    folders = [os.path.join(folder, "") for folder in sys.path if folder]
    above = max((folder for folder in folders if file.startswith(folder)), key=len, default="")
    above = above or os.path.join(os.path.dirname(os.path.dirname(file)), "")
    inside = SITE_PACKAGES.split(file)[-1].removeprefix(above)
    return os.path.splitext(inside.split(os.sep)[0])[0]


def set_base_folder(folder: str) -> None:
    """Make the reports of this process name files as seen from here, wherever it goes."""
    BASE_FOLDER[:] = [folder]


def is_cell(file: str) -> bool:
    """True for the file of a notebook cell."""
    return bool(CELL.search(file))


def short(file: str) -> str:
    """The path below the reader's folder, else name and folder; "cell" for a cell's file."""
    if file in DISPLAY_NAMES:
        return DISPLAY_NAMES[file]
    if is_cell(file):
        return "cell"
    with_folder = os.path.join(*file.split(os.sep)[-2:])
    try:
        relative = os.path.relpath(file, BASE_FOLDER[-1])
    except (OSError, ValueError):  # the current folder is gone; another drive on Windows
        return with_folder
    return with_folder if relative.startswith("..") else relative
