"""For exercises that ask for a name by letter: the form of the answer, and what is left open."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddp_workbook.judging.check import CheckFailed
from ddp_workbook.judging.comparison import Comparison, Observation
from ddp_workbook.judging.equality import ANY
from ddp_workbook.judging.values import in_words


def choices_by_letter(
    call_text: str, answer: Any, letters: Sequence[str], allowed: str, read: Callable[[str], str]
) -> dict[str, str]:
    """The names by letter, as `read` gives them; "" where there is none yet.

    Raises CheckFailed for what is no dict of names; `read` raises ValueError for what is no name.
    """
    if not isinstance(answer, Mapping) or not set(answer) <= set(letters):
        required = f"a dict of names, with the letters {letters[0]} to {letters[-1]}"
        look = "The cell began with a dict. Are its letters, and the return, still there?"
        raise CheckFailed(call_text, in_words(answer), required, look)
    names = {}
    for letter in letters:
        name = answer.get(letter)
        try:
            names[letter] = "" if name in (None, "") else read(str(name))
        except ValueError:
            actual = f"{in_words(name)} for {letter}"
            look = "Is it one name of the list, in the same spelling?"
            raise CheckFailed(call_text, actual, allowed, look) from None
    return names


def first_wrong(obs: Observation) -> str:
    """The letter that the verdict is about."""
    return next(
        letter for letter in obs.expected if obs.value[letter] not in (ANY, obs.expected[letter])
    )


def all_answered(letters: Sequence[str], hint: str) -> Comparison:
    """Whether there is a name for each letter."""
    return Comparison(
        hint,
        [],
        lambda obs: [letter for letter, name in obs.actual.items() if not name],
        actual="no name for {value}; the other names are right",
        required=f"a name for each of {letters[0]} to {letters[-1]}",
    )
