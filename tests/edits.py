"""The mistakes in the tables of the exercises, as wrong answers: edits of the solution."""

import re

from ddp_workbook.judging.catalogue import Exercise, names
from tools.wrong_answers import WrongAnswer

EXERCISES = {name: Exercise(name) for name in names()}


def edits(task: Exercise) -> list[WrongAnswer]:
    """The edits of its table as cells, in order; ValueError names a row that does not fit."""
    rows = []
    for number, (words, edit) in enumerate(task.check.edits):
        try:
            rows.append(
                WrongAnswer(task.name, f"row {number}", edit.apply(task.solution), (words,))
            )
        except ValueError as error:
            raise ValueError(f"{task.name}, row {number} ({words}): {error}") from None
    return rows


EDITS = {name: edits(one) for name, one in EXERCISES.items()}


def exercise(name: str) -> Exercise:
    return EXERCISES[name]


def pattern(words: str) -> str:
    """The words with any number in place of {rank}."""
    return re.sub(r"\\\{\w+\\\}", r"\\d+", re.escape(words))


def stripped_lines(code: str) -> set[str]:
    """The lines of some code, without margin."""
    return {line.strip() for line in code.splitlines()}
