"""A table of contents that knows what is solved."""

import contextlib
import html
from dataclasses import dataclass
from pathlib import Path

from ddp_workbook.judging import attempts
from ddp_workbook.judging.catalogue import names, of_chapter
from ddp_workbook.judging.verdict import FOLD_STYLE
from ddp_workbook.page import guesses, pages, questions

CELL = "text-align:left; padding:0.1em 1em 0.1em 0"
INDENT = "padding-left:1.5em"


@dataclass(frozen=True)
class Entry:
    """A page with its exercises."""

    stem: str
    title: str
    minutes: str
    solved: list[str]
    open: list[str]

    @property
    def count(self) -> str:
        """ "1 of 2 solved", or "" for a page without exercises."""
        total = len(self.solved) + len(self.open)
        return f"{len(self.solved)} of {total} solved" if total else ""


class Progress:
    """What is solved on one page and on all of them, read from what is saved under `work/`.

    Without a stem, of all pages. `page` is the page whose questions count, "04_samplers". Raises
    UnknownExercise if the page has no exercises.
    """

    def __init__(self, stem: str | None, page: str = ""):
        self.stem, self.page, self.guesses = stem, page, Guesses(page)
        exercises = names() if stem is None else of_chapter(stem)
        self.solved = [name for name in exercises if attempts.latest_passed(name)]
        self.open = [name for name in exercises if name not in self.solved]

    def __repr__(self) -> str:
        return "\n".join([self.summary, *self.guesses.lines])

    @property
    def summary(self) -> str:
        """What is solved, in a sentence."""
        count = f"{len(self.solved)} of {len(self.solved + self.open)} solved"
        if self.stem is None:
            return f"Exercises of all pages: {count}."
        line = f"Exercises of this chapter: {count}"
        if self.solved:
            line += f" ({', '.join(self.solved)})"
        return line + (f"; still open: {', '.join(self.open)}." if self.open else ".")

    def _repr_html_(self) -> str:
        entries = all_pages_progress()
        total = [sum(len(entry.solved) for entry in entries), len(names())]
        last = last_open_exercise(entries)
        continued = ""
        if last and last[0].stem[3:] != self.stem:
            page, name = last
            where = f"{link(page, self.page)}, exercise {html.escape(name)}"
            continued = f"<p>You were last at {where}, which is open.</p>"
        table = "".join(row(entry, self.page) for entry in entries)
        return (
            f"<p>{html.escape(self.summary)}</p>{self.guesses.as_html()}{continued}"
            f'<details style="{FOLD_STYLE}"><summary>All pages: {total[0]} of {total[1]} exercises '
            f"solved</summary><table>{table}</table></details>"
        )


class Guesses:
    """What a reader has guessed on a page, and where the answer was another."""

    def __init__(self, page: str):
        self.questions = list(questions.of_page(page).values())
        pairs = [(question, guesses.load_guess(question.name)) for question in self.questions]
        self.answers = [(question, guess) for question, guess in pairs if guess]
        revealed = [
            guesses.RevealedAnswer(question, guess.answer, guess)
            for question, guess in self.answers
            if guess.answer is not None
        ]
        self.surprises = [answer for answer in revealed if answer.is_surprise]
        self.right_count = len(revealed) - len(self.surprises)

    @property
    def lines(self) -> list[str]:
        """How many were guessed, and each surprise with its question; nothing without questions."""
        if not self.questions:
            return []
        count = f"Questions of this page: {len(self.answers)} of {len(self.questions)} guessed"
        first = f"{count}, {self.right_count} right." if self.answers else f"{count}."
        return [
            first,
            *(f"{surprise.question.ask} {surprise.comparison}" for surprise in self.surprises),
        ]

    def as_html(self) -> str:
        """The same as a paragraph and a list."""
        first, *surprises = map(html.escape, self.lines or [""])
        items = "".join(f"<li>{line}</li>" for line in surprises)
        return (first and f"<p>{first}</p>") + (items and f"<ul>{items}</ul>")


def all_pages_progress() -> list[Entry]:
    """All pages in their order; empty if this is not a checkout with notebooks."""
    entries = []
    with contextlib.suppress(pages.BadPage):
        for path in pages.all_pages():
            page = pages.load(path)
            exercises = [name for name, _ in pages.exercises(page)]
            solved = [name for name in exercises if attempts.latest_passed(name)]
            unsolved = [name for name in exercises if name not in solved]
            entries.append(
                Entry(path.stem, pages.title(page), pages.minutes(page), solved, unsolved)
            )
    return entries


def last_open_exercise(entries: list[Entry]) -> tuple[Entry, str] | None:
    """The page and name of the exercise that was tried last, if it is open; else None."""
    attempt_times: list[tuple[float, str]] = []
    for path in Path(attempts.FOLDER).glob("*.py"):
        with contextlib.suppress(OSError):
            attempt_times.append((path.stat().st_mtime, path.stem.partition(".")[0]))
    name = max(attempt_times)[1] if attempt_times else ""
    return next(((entry, name) for entry in entries if name in entry.open), None)


def link(page: Entry, here: str) -> str:
    """The page's title as a link, for a cell of the page `here`."""
    return f'<a href="{pages.link_to(page.stem, here)}">{html.escape(page.title)}</a>'


def row(page: Entry, here: str) -> str:
    """A page in the table of the page `here`; a further one stands a little to the right."""
    first = f"{CELL}; {INDENT}" if pages.FURTHER in page.stem else CELL
    cells = f'<td style="{first}">{link(page, here)}</td>'
    return f'<tr>{cells}<td style="{CELL}">{page.minutes}</td><td>{page.count}</td></tr>'
