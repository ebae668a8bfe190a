"""Computes how many minutes a page takes.

Teaching is words read at 180 a minute, code read at 30 lines a minute, half a minute for each
question to predict and for each picture or table that a cell shows, a minute for each picture to
play with, and the seconds that its cells run, half a minute at most. Code, pictures and tables that
cells show count once the page has been executed. Exercises take the minutes that each of them
states. A page gives both numbers under its question.
"""

import re

import nbformat

from ddp_workbook.judging.source import path_of
from ddp_workbook.page import questions
from ddp_workbook.page.pages import EXERCISE, PREDICT_CALL, STATED

WORDS, LINES, PREDICTION, MINUTES_PER_FIGURE, PLAYER = 180, 30, 0.5, 0.5, 1.0
MAX_RUN_S = 30  # seconds of running that count at most: a busy machine says nothing about a page
FIGURE = re.compile(r"<(img|svg|table)\b")
SHOWS_CODE = re.compile(r'(reveal\(\s*"\w+",\s*)?(show_code|what_changed)\(')
WORD = re.compile(r"\w[\w'.-]*")


def stated_minutes(notebook: nbformat.NotebookNode) -> tuple[int, int] | None:
    """The minutes that a page gives for teaching and for its exercises; None if it gives none."""
    match = STATED.search(notebook.cells[0].source)
    return (int(match[1]), int(match[2])) if match else None


def teaching(notebook: nbformat.NotebookNode, seconds: float = 0.0) -> float:
    """Minutes to read a page and its code, to predict, look, play, and to wait `seconds` in all.

    An exercise's cells, whose ids begin with ex-, are left out: its own minutes include them.
    """
    words = lines = extra_minutes = 0.0
    for cell in notebook.cells:
        if cell.id.startswith("ex-"):
            continue
        if cell.cell_type == "markdown":
            words += len(WORD.findall(cell.source))
            extra_minutes += PLAYER * cell.source.count("**Play.**")
        elif prediction := PREDICT_CALL.match(cell.source):
            words += len(WORD.findall(questions.find(prediction[1]).ask))
            extra_minutes += PREDICTION
        elif cell.cell_type == "code":
            lines += lines_of(cell.source)
            if SHOWS_CODE.match(cell.source):
                lines += sum(lines_of(output.data["text/plain"]) for output in cell.outputs[:1])
            elif not cell.source.startswith("progress("):
                extra_minutes += MINUTES_PER_FIGURE * sum(map(is_figure, cell.outputs))
    return words / WORDS + lines / LINES + extra_minutes + min(seconds, MAX_RUN_S) / 60


def is_figure(output: nbformat.NotebookNode) -> bool:
    """True for a picture or a table."""
    return bool(FIGURE.search(output.get("data", {}).get("text/html", "")))


def lines_of(code: str) -> int:
    """Lines that are not empty."""
    return sum(bool(line.strip()) for line in code.splitlines())


def exercises(notebook: nbformat.NotebookNode) -> int:
    """Minutes for all exercises of a page, as their files state them."""
    names = [EXERCISE.match(cell.source) for cell in notebook.cells]
    return sum(of_exercise(name[1]) for name in names if name)


def of_exercise(name: str) -> int:
    """MINUTES of an exercise. Its file is only read: importing it would import torch.

    Raises ValueError if the file has no such line.
    """
    file = path_of(name)
    match = re.search(r"^MINUTES = (\d+)$", file.read_text(encoding="utf-8"), flags=re.M)
    if not match:
        raise ValueError(f"{file.name} has no line MINUTES = 8: how long does it take?")
    return int(match[1])
