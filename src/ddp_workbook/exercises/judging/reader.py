"""What a reader can call besides an exercise: `hint`, `solution`, `progress`."""

import html
from collections import Counter

from ddp_workbook.exercises.judging import attempts
from ddp_workbook.exercises.judging.catalogue import find, of_chapter
from ddp_workbook.exercises.judging.verdict import FOLDED, TEXT

GIVEN: Counter[str] = Counter()  # hints that were shown, by exercise


class Folded:
    """Texts under titles that unfold with a click; plain text outside a notebook."""

    def __init__(self, parts: list[tuple[str, str]], *, code: bool = False):
        self.parts, self.code = parts, code

    def _repr_html_(self) -> str:
        return "".join(
            f'<details style="{FOLDED}"><summary>{html.escape(title)}</summary>'
            f"{self._body(text)}</details>"
            for title, text in self.parts
        )

    def _body(self, text: str) -> str:
        if self.code:
            return f'<pre style="{TEXT}">{html.escape(text)}</pre>'
        return f"<p>{html.escape(text)}</p>"

    def __repr__(self) -> str:
        return "\n\n".join(f"{title}\n{text}" for title, text in self.parts)


def hint(name: str) -> Folded:
    """The next hint for the exercise, folded; after the last one, all of them again.

    Raises UnknownExercise.
    """
    hints = find(name).hints
    titled = [(f"Hint {n} of {len(hints)}", text) for n, text in enumerate(hints, start=1)]
    GIVEN[name] += 1
    if GIVEN[name] <= len(hints):
        return Folded([titled[GIVEN[name] - 1]])
    return Folded([*titled, ("No more hints", f'solution("{name}") shows one solution.')])


def solution(name: str) -> Folded:
    """One solution of the exercise, folded: a whole cell, without its first line.

    Raises UnknownExercise.
    """
    return Folded([(f"One solution of {name}", find(name).solution)], code=True)


class Progress:
    """A line about some exercises, read from what is saved under `work/`."""

    def __init__(self, names: list[str]):
        self.solved = [name for name in names if attempts.solved(name)]
        self.open = [name for name in names if name not in self.solved]

    def __repr__(self) -> str:
        total = len(self.solved) + len(self.open)
        line = f"Exercises of this chapter: {len(self.solved)} of {total} solved"
        if self.solved:
            line += f" ({', '.join(self.solved)})"
        return line + (f"; still open: {', '.join(self.open)}." if self.open else ".")


def progress(stem: str) -> Progress:
    """Which exercises of the chapter `stem` ("data_parallel") are solved, and which are open.

    Raises UnknownExercise.
    """
    return Progress(of_chapter(stem))
