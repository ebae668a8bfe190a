"""What a reader can call besides an exercise: `hint`, `solution`, `progress`."""

import html
from collections import Counter

from ddp_workbook.judging.catalogue import find
from ddp_workbook.judging.progress_table import Progress
from ddp_workbook.judging.verdict import FOLD_STYLE, TEXT_STYLE
from ddp_workbook.page import pages
from ddp_workbook.page.this_page import this_page

ATTEMPTS_BEFORE_SOLUTION = 2  # attempts that did not pass, before the page offers a solution
BUTTON = (
    "display:inline-block; padding:0.1em 0.8em; border:1px solid; border-radius:4px; cursor:pointer"
)
HINT_COUNTS: Counter[str] = Counter()  # hints that were shown, by exercise


class FoldedTexts:
    """Texts under titles that unfold with a click; plain text outside a notebook."""

    def __init__(self, parts: list[tuple[str, str]], *, code: bool = False):
        self.parts, self.code = parts, code

    def _repr_html_(self) -> str:
        return "".join(
            f'<details style="{FOLD_STYLE}"><summary>{html.escape(title)}</summary>'
            f"{self._body(text)}</details>"
            for title, text in self.parts
        )

    def _body(self, text: str) -> str:
        if self.code:
            return f'<pre style="{TEXT_STYLE}">{html.escape(text)}</pre>'
        return f"<p>{html.escape(text)}</p>"

    def __repr__(self) -> str:
        return "\n\n".join(f"{title}\n{text}" for title, text in self.parts)


def hint(name: str) -> FoldedTexts:
    """The next hint for the exercise, folded; after the last one, all of them again.

    Raises UnknownExercise.
    """
    hints = find(name).hints
    titled = [(f"Hint {n} of {len(hints)}", text) for n, text in enumerate(hints, start=1)]
    HINT_COUNTS[name] += 1
    if HINT_COUNTS[name] <= len(hints):
        return FoldedTexts([titled[HINT_COUNTS[name] - 1]])
    return FoldedTexts([*titled, ("No more hints", f'solution("{name}") shows one solution.')])


def solution(name: str) -> FoldedTexts:
    """One solution of the exercise, folded: a whole cell, without its first line.

    Raises UnknownExercise.
    """
    return FoldedTexts([(f"One solution of {name}", find(name).solution)], code=True)


def next_steps(name: str, attempt_count: int) -> str:
    """HTML with a button for the first hint, in it one for the next, and so on.

    After two attempts that did not pass, beside it a button for a solution. Raises UnknownExercise.
    """
    exercise = find(name)
    inner, count = "", len(exercise.hints)
    for number, text in reversed(list(enumerate(exercise.hints, start=1))):
        inner = _button(f"Hint {number} of {count}", f"<p>{html.escape(text)}</p>{inner}")
    if attempt_count < ATTEMPTS_BEFORE_SOLUTION:
        return inner
    code = f'<pre style="{TEXT_STYLE}">{html.escape(exercise.solution)}</pre>'
    return inner + _button("One solution", code)


def _button(words: str, body: str) -> str:
    """Something to click that shows the body; it needs no kernel."""
    return (
        f'<details style="{FOLD_STYLE}"><summary style="{BUTTON}">{words}</summary>{body}</details>'
    )


def progress(stem: str | None = None) -> Progress:
    """What is solved and guessed: of this page first, then of all pages, with links.

    Where an answer was not as guessed, both are shown. `stem` ("samplers") names another page.
    Raises UnknownExercise if it is none with exercises.
    """
    if stem is not None:
        stems = [path.stem for path in pages.all_pages() if stem == path.stem[3:]]
        return Progress(stem, *stems)
    page = this_page()
    if page and pages.exercises(pages.load(page)):
        stem = page.stem[3:]
    return Progress(stem, page.stem if page else "")
