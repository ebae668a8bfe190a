"""For exercises that ask for a name by letter: the form of the answer, and what is left open."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddp_workbook.exercises.judging.check import ANY, Look, NotYet, Seen
from ddp_workbook.exercises.judging.values import in_words


def names_in(
    called: str, answer: Any, letters: Sequence[str], allowed: str, read: Callable[[str], str]
) -> dict[str, str]:
    """The names by letter, as `read` gives them; "" where there is none yet.

    Raises NotYet for what is no dict of names; `read` raises ValueError for what is no name.
    """
    if not isinstance(answer, Mapping) or not set(answer) <= set(letters):
        required = f"a dict of names, with the letters {letters[0]} to {letters[-1]}"
        look = "The cell began with a dict. Are its letters, and the return, still there?"
        raise NotYet(called, in_words(answer), required, look)
    names = {}
    for letter in letters:
        name = answer.get(letter)
        try:
            names[letter] = "" if name in (None, "") else read(str(name))
        except ValueError:
            actual = f"{in_words(name)} for {letter}"
            look = "Is it one name of the list, in the same spelling?"
            raise NotYet(called, actual, allowed, look) from None
    return names


def first_wrong(seen: Seen) -> str:
    """The letter that the verdict is about."""
    return next(one for one in seen.right if seen.value[one] not in (ANY, seen.right[one]))


def none_left_open(letters: Sequence[str], otherwise: str) -> Look:
    """Whether there is a name for each letter."""
    return Look(
        of=lambda seen: [letter for letter, name in seen.actual.items() if not name],
        right=[],
        otherwise=otherwise,
        actual="no name for {value}; the other names are right",
        required=f"a name for each of {letters[0]} to {letters[-1]}",
        words=", ".join,
    )
