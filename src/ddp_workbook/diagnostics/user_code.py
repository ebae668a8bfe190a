"""Whose code a file is: the reader's own (a cell, a chapter, a script), or a library's."""

import os
import re
import sysconfig
from collections.abc import Callable

import torch

BOOK = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
MACHINERY = tuple(
    os.path.join(BOOK, room, "")
    for room in ("launcher", "diagnostics", "recording", "notebook", "figures")
)
LIBRARIES = tuple(
    os.path.join(folder, "")
    for folder in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        os.path.dirname(os.path.dirname(torch.__file__)),
    }
)

CELL = re.compile(r"cell_[0-9a-f]{8}\.py$")  # as `cell.save_cell` names them
HIDDEN = [*MACHINERY]  # folders whose frames no report shows
NAMES: dict[str, str] = {}  # file -> its name in reports
WAITING_ROOMS: set[tuple[str, str]] = set()  # (file, function) in which a finished rank waits


def hide(folder: str) -> None:
    """Make the reports of this process leave out frames of files below `folder`."""
    folder = os.path.join(folder, "")
    if folder not in HIDDEN:
        HIDDEN.append(folder)


def wait_in(function: Callable) -> Callable:
    """Make a rank inside this function count as one that has returned."""
    WAITING_ROOMS.add((function.__code__.co_filename, function.__name__))
    return function


def call_it(file: str, name: str) -> None:
    """Make the reports of this process call `file` by this name."""
    NAMES[file] = name


def is_library(file: str) -> bool:
    """True for a file of Python, torch or another installed package, except chapters."""
    return file.startswith(LIBRARIES) and not file.startswith(BOOK)


def is_machinery(file: str) -> bool:
    """True for a file of the workbook that no report shows."""
    return file.startswith(tuple(HIDDEN))


def is_own(file: str) -> bool:
    """True for a file that the reader wrote or reads: not a library, machinery or `<…>`."""
    return not is_library(file) and not is_machinery(file) and not file.startswith("<")


def is_cell(file: str) -> bool:
    """True for the file of a notebook cell."""
    return bool(CELL.search(file))


def short(file: str) -> str:
    """The path below the current folder, else name and folder; "cell" for a cell's file."""
    if file in NAMES:
        return NAMES[file]
    if is_cell(file):
        return "cell"
    with_folder = os.path.join(*file.split(os.sep)[-2:])
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # the current folder is gone; another drive on Windows
        return with_folder
    return with_folder if relative.startswith("..") else relative
