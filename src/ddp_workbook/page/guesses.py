"""Guesses of a reader: kept in files, compared with the answer, final once it was shown."""

from __future__ import annotations

import contextlib
import html
import json
import time
import weakref
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ddp_workbook.page.questions import Answer, Question
from manyranks.files import temporary_folder, temporary_folders, write_atomically

FOLDER = Path("work") / "predictions"
CORRECTION_S = 5.0  # seconds in which another choice corrects a slip, and is no second thought
KNOWN_ANSWERS: dict[str, Answer] = {}  # what this kernel has shown, also to those who made no guess
VISIBLE_WIDGETS: weakref.WeakSet[Any] = weakref.WeakSet()  # told when an answer is shown
TOO_LATE = "The answer has been shown, so it is too late for a guess."
NOT_KEPT = "It is kept until this kernel ends: {folder} cannot be written."


@dataclass(frozen=True)
class Guess:
    """A reader's guess: the `first`, the one of `now`, and the `answer` once it was shown.

    `made` is when the first one was made, in seconds since 1970.
    """

    first: Answer
    now: Answer
    made: float = 0.0
    answer: Answer | None = None


def save_guess(question: Question, response: object) -> str:
    """Keep a guess and tell the room, if one was joined; what a reader should know, else "".

    Raises QuestionError for what is no answer to the question.
    """
    name, answer = question.name, question.answer(response)
    before = load_guess(name)
    if is_answered(name, before):
        return "" if before and before.now == answer else TOO_LATE
    if before is None:
        guess = Guess(answer, answer, time.time())
    elif time.time() - before.made < CORRECTION_S:
        guess = replace(before, first=answer, now=answer)
    else:
        guess = replace(before, now=answer)
    notice = write_guess(name, guess)
    from ddp_workbook.page.room_client.report import note_guess  # late: ranks import this, too

    note_guess(name, str(guess.first), str(guess.now))
    return notice


def is_answered(name: str, guess: Guess | None) -> bool:
    """Whether the answer was shown: by this kernel, or, after the guess, by an earlier one."""
    return name in KNOWN_ANSWERS or (guess is not None and guess.answer is not None)


def settle(question: Question, answer: Answer | None) -> RevealedAnswer:
    """Note that this answer was shown; it is the one of the table if None."""
    answer = question.answer(question.right if answer is None else answer)
    KNOWN_ANSWERS[question.name] = answer
    guess = load_guess(question.name)
    if guess and guess.answer != answer:
        guess = replace(guess, answer=answer)
        write_guess(question.name, guess)
    for widget in set(VISIBLE_WIDGETS):
        if widget.question == question:
            widget.show()
    return RevealedAnswer(question, answer, guess)


@dataclass(frozen=True)
class RevealedAnswer:
    """Guess, answer and one sentence, as a page shows them."""

    question: Question
    answer: Answer
    guess: Guess | None

    @property
    def comparison(self) -> str:
        """ "Your guess: 2 ranks. The answer: 1.5 ranks." """
        it_was = self.question.words(self.answer)
        if self.guess is None:
            return f"The answer: {it_was}."
        guess_words = self.question.words(self.guess.now)
        if self.question.agrees(self.guess.now, self.answer):
            return f"Right: {it_was}."
        return f"Your guess: {guess_words}. The answer: {it_was}."

    @property
    def is_surprise(self) -> bool:
        """Whether there was a guess, and another answer."""
        return self.guess is not None and not self.question.agrees(self.guess.now, self.answer)

    def __repr__(self) -> str:
        return f"{self.comparison} {self.question.because}".rstrip()

    def _repr_html_(self) -> str:
        style = "border-left:4px solid #0072b2; padding-left:0.6em; margin:0.3em 0"
        first, rest = html.escape(self.comparison), html.escape(self.question.because)
        return f'<p style="{style}"><strong>{first}</strong> {rest}</p>'


def load_guess(name: str) -> Guess | None:
    """The guess under `name`; None if there is none, or its file is damaged."""
    for folder in (
        *temporary_folders(),
        Path.cwd(),
    ):  # where `write_guess` writes if it must, first
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Guess(**json.loads(_file(folder, name).read_text(encoding="utf-8")))
    return None


def write_guess(name: str, guess: Guess) -> str:
    """Write the guess; what a reader should know if their folder does not take it, else ""."""
    text = json.dumps(asdict(guess))
    try:
        write_atomically(_file(Path.cwd(), name), text)
    except OSError:  # read-only, or full
        write_atomically(_file(temporary_folder(), name), text)
        return NOT_KEPT.format(folder=FOLDER.absolute())
    return ""


def _file(folder: Path, name: str) -> Path:
    return folder / FOLDER / f"{name}.json"
