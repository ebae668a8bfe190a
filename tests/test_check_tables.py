"""The tables of the checks: every mistake that a value describes is told by its own words.

No attempt runs here. Each entry of a table plays the attempt that returns its values, and a table
that cannot tell it apart from the truth, or from another entry, fails with its name.
"""

from dataclasses import replace

import pytest

from ddp_workbook.exercises.judging.catalogue import Exercise, names
from ddp_workbook.exercises.judging.check import ANY, Look, OnRanks, Seen, When, ask
from ddp_workbook.exercises.judging.diagnosis import diagnose, worded

CHECKS = {name: Exercise(name).module.CHECK for name in names()}
ENTRIES = [
    (name, number, words)
    for name, check in CHECKS.items()
    for number, look in enumerate(check.looks)
    for words, mistake in look.mistakes.items()
    if not isinstance(mistake, When)
]


def played(check: OnRanks, look: Look, size: int, answer: object) -> list[list[Seen]]:
    """The calls at this world size, if the reader's function returned what `answer` says."""
    calls = []
    for number, case in enumerate(check.cases_of(size)):
        ranks = range(check.ranks_of(case, size))
        call = [Seen(number, rank, case, ask(answer, case, rank)) for rank in ranks]
        for seen in call:
            seen.came = ask(look.right, case, seen.rank) if seen.came is ANY else seen.came
            seen.everyone = call
        calls.append(call)
    return calls


@pytest.mark.parametrize("name", CHECKS)
def test_there_is_a_right_value_for_every_call_on_every_rank(name):
    """And the look that compares it finds nothing wrong with it."""
    check = CHECKS[name]
    for size in check.sizes or (0,):
        for look in check.looks:
            assert look.right is not None, f"{name}: a look without a right value"
            plain = replace(look, of=lambda seen: seen.came)
            assert diagnose(plain, played(check, plain, size, look.right)) is None


@pytest.mark.parametrize(("name", "number", "words"), ENTRIES)
def test_who_makes_this_mistake_is_told_so(name, number, words):
    """At the largest world size, which is judged first; with only the words of this entry."""
    check = CHECKS[name]
    look = check.looks[number]
    without_conditions = {w: m for w, m in look.mistakes.items() if not isinstance(m, When)}
    plain = replace(look, of=lambda seen: seen.came, mistakes=without_conditions)
    size = max(check.sizes, default=0)
    found = diagnose(plain, played(check, plain, size, look.mistakes[words]))
    assert found, (
        f"{name}: what this mistake gives is right in every call (up to the tolerance): {words}"
    )
    seen, told = found
    assert told == worded(words, seen), f"{name}: another entry gives the same values: {words}"
