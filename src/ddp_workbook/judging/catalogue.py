"""The exercises by name."""

import difflib
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType

from ddp_workbook.errors import WorkbookError
from ddp_workbook.exercises import CHAPTERS
from ddp_workbook.exercises.judging import source
from ddp_workbook.exercises.judging.check import DistributedCheck, load

FOLDER = Path(__file__).parents[1]


class UnknownExercise(WorkbookError, LookupError):
    """There is no exercise, or no chapter, of that name."""


class Exercise:
    """One file of `exercises`: its texts, and its module once something must run."""

    def __init__(self, name: str):
        self.name = name
        self.text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")

    @cached_property
    def module(self) -> ModuleType:
        """The exercise's file, imported."""
        return import_module(f"ddp_workbook.exercises.{self.name}")

    @cached_property
    def stub(self) -> str:
        """What the reader's cell holds at first."""
        return source.stub(self.text, self.name)

    @cached_property
    def solution(self) -> str:
        """The same cell, solved."""
        return source.solution(self.text, self.name)

    @cached_property
    def check(self) -> DistributedCheck:
        """What is called, looked at, and required."""
        return load(self.name)

    @property
    def hints(self) -> list[str]:
        """The hints, from a nudge to nearly there."""
        return list(self.module.HINTS)


def names() -> list[str]:
    """All exercises, in the order of the notebooks."""
    return [name for listed in CHAPTERS.values() for name in listed]


def find(name: str) -> Exercise:
    """The exercise called `name`; raises UnknownExercise with all names."""
    if name not in names():
        raise UnknownExercise(_unknown("exercise", name, names()))
    return Exercise(name)


def of_chapter(stem: str) -> list[str]:
    """The names of a chapter's exercises; raises UnknownExercise."""
    if stem not in CHAPTERS:
        raise UnknownExercise(_unknown("chapter with exercises", stem, list(CHAPTERS)))
    return CHAPTERS[stem]


def _unknown(what: str, name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(str(name), known, 1)
    meant = f" Did you mean {near[0]}?" if near else ""
    return f"There is no {what} called {str(name)!r}.{meant}\nThere are: {', '.join(known)}."
