"""Reads the questions of a page, and understands what a reader answers.

They stand in experiments/<stem>/<page>.toml, and each is asked by its name: `[how_many]` of
05_collectives.toml by `predict("how_many")`. It
has the text (`ask`), the `choices` or the `unit` of a number, the answer (`right`: the letter of a
choice, or a number), and perhaps a clause more (`because`): the reason is the text below. Without
`right`, the page measures the answer.
"""

import difflib
import math
import numbers
import re
import reprlib
import string
import textwrap
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from manyranks.errors import WorkbookError

Answer = str | float  # the letter of a choice, or a number

FOLDER = Path(__file__).parents[1] / "experiments"


class QuestionError(WorkbookError, ValueError):
    """A question that does not exist, or a guess that is no answer to it."""


@dataclass(frozen=True)
class Question:
    """A question of the page with this stem; `within` is how far a right number may be off, as 0.1.

    `choices` are lettered from a, in the order in which they are shown; empty for a number.
    """

    name: str
    page: str
    ask: str
    because: str = ""
    choices: tuple[str, ...] = ()
    right: Answer | None = None
    unit: str = ""
    within: float = 0.0

    @property
    def letters(self) -> str:
        """As many as there are choices."""
        return string.ascii_lowercase[: len(self.choices)]

    @property
    def cell(self) -> str:
        """The cell that asks it: its words as comments, for those who read without a kernel."""
        lines = textwrap.wrap(self.ask, 94)
        for letter, choice in zip(self.letters, self.choices, strict=True):
            first, *others = textwrap.wrap(choice, 90)
            lines += [f"{letter}  {first}", *(f"   {line}" for line in others)]
        return "\n".join([f'predict("{self.name}")', *(f"# {line}" for line in lines)])

    def answer(self, guess: object) -> Answer:
        """The guess as a letter or a number; a choice by its words, letter or number, too.

        Raises QuestionError for anything else.
        """
        return self._choice(guess) if self.choices else self._number(guess)

    def _choice(self, guess: object) -> str:
        words = " ".join(str(guess).split()).lower()
        for letter, choice in zip(self.letters, self.choices, strict=True):
            if words in (letter, choice.lower()):
                return letter
        takes_number = not any(choice[0].isdecimal() for choice in self.choices)  # else ambiguous
        if takes_number and words.isdecimal() and 1 <= int(words) <= len(self.choices):
            return self.letters[int(words) - 1]
        raise QuestionError(
            f"{reprlib.repr(guess)} is no answer to {self.name}. Choose one letter:\n"
            f"{self.lettered_choices}"
        )

    def _number(self, guess: object) -> float:
        value = guess
        if isinstance(guess, str) and re.fullmatch(r"\s*-?\d{1,3}([,_]\d{3})+(\.\d+)?\s*", guess):
            value = guess.replace(",", "").replace("_", "")
        try:
            if isinstance(value, str | numbers.Real) and not isinstance(value, bool):
                number = float(value)
                if math.isfinite(number):
                    return int(number) if number == int(number) else number
        except ValueError:
            pass
        unit = f", in {self.unit}" if self.unit else ""
        raise QuestionError(
            f"A guess for {self.name} is a number{unit}: {reprlib.repr(guess)} is none."
        )

    @property
    def lettered_choices(self) -> str:
        """The choices with their letters, a line each."""
        pairs = zip(self.letters, self.choices, strict=True)
        return "\n".join(f"  {letter}  {choice}" for letter, choice in pairs)

    def words(self, answer: Answer) -> str:
        """An answer as a reader says it: the words of a choice, or a number with its unit."""
        if isinstance(answer, str):
            return self.choices[self.letters.index(answer)]
        text = f"{answer:,}" if isinstance(answer, int) else f"{answer:,.4g}"
        return f"{text} {self.unit}".rstrip()

    def agrees(self, guess: Answer, answer: Answer) -> bool:
        """Whether the guess is the answer, or near enough."""
        if isinstance(guess, str) or isinstance(answer, str):
            return guess == answer
        return math.isclose(guess, answer, rel_tol=max(self.within, 1e-9))


@cache
def of_page(stem: str) -> dict[str, Question]:
    """The questions of a page in their order, by name; none if it has no table."""
    path = next(FOLDER.glob(f"*/{stem}.toml"), None)
    if path is None:
        return {}
    rows = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: question(name, stem, row) for name, row in rows.items()}


def question(name: str, page: str, row: dict) -> Question:
    """A row of the table."""
    return Question(name, page, **row | {"choices": tuple(row.get("choices", ()))})


@cache
def all_questions() -> dict[str, Question]:
    """The questions of all pages, by name."""
    stems = sorted(path.stem for path in FOLDER.glob("*/*.toml"))
    return {name: entry for stem in stems for name, entry in of_page(stem).items()}


def find(name: str) -> Question:
    """The question with this name. Raises QuestionError if there is none, with the nearest name."""
    entry = all_questions().get(name)
    if entry is None:
        near = difflib.get_close_matches(str(name), all_questions(), 1, 0.5)
        suggestion = f" Did you mean {near[0]!r}?" if near else ""
        raise QuestionError(f"No page asks a question called {name!r}.{suggestion}")
    return entry
