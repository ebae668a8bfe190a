"""Whose code a file is: the reader's own (a cell, a chapter, a script), or a library's."""

import os
import sysconfig

import torch

LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {os.path.dirname(os.path.dirname(torch.__file__))}
)
MACHINERY = (*LIBRARIES, os.path.dirname(__file__), "<")


def is_library(file: str) -> bool:
    """True for a file of Python, torch or another installed package."""
    return file.startswith(LIBRARIES)


def is_own(file: str) -> bool:
    """True for a file that the reader wrote or reads: no library, not the workbench, not `<frozen …>`."""
    return not file.startswith(MACHINERY)


def short(file: str) -> str:
    """The file's path as seen from the current folder where it lies below it, else its name with its folder."""
    relative = os.path.relpath(file)
    return relative if not relative.startswith("..") else os.path.join(*file.split(os.sep)[-2:])
