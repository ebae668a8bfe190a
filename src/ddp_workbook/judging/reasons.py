"""Ranks the edits of the solution by how much of a wrong attempt each of them explains."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations, islice

from ddp_workbook.judging.check import DistributedCheck, Edit
from ddp_workbook.judging.comparison import Comparison, Observation
from ddp_workbook.judging.diagnosis import Explanation, explain, fill_words


class Extent(IntEnum):
    """How much of an attempt is explained, because an edited solution gives the same."""

    NOTHING = 0
    UP_TO_FAILURE = 1  # in all calls, the values up to the comparison that fails
    ALL_VALUES = 2
    ALL_EFFECTS = 3  # also the same operations in order, and the same changed arguments


@dataclass
class Candidate:
    """An edit of the solution, the words for it, and what it explains."""

    words: str
    edit: Edit
    first: Explanation  # of the failing call
    everywhere: Explanation | None = None  # of all calls, if it fits and can run there

    def extent(self, compared: int) -> Extent:
        """Its place in the ranking; `compared` counts the comparisons up to the failing one."""
        if self.everywhere and all(self.everywhere.same_values):
            return Extent.ALL_EFFECTS if self.everywhere.same_effects else Extent.ALL_VALUES
        if self.everywhere and all(self.everywhere.same_values[:compared]):
            return Extent.UP_TO_FAILURE
        return Extent.NOTHING


@dataclass
class Reasons:
    """The edits that explain a wrong attempt; `bad` is the first call and rank that is wrong."""

    check: DistributedCheck
    comparison: Comparison  # that fails there
    bad: Observation
    calls: Sequence[Sequence[Observation]]
    run: Callable[..., list]  # (texts, number of a call or None) -> by text, its calls or None

    def __post_init__(self) -> None:
        self.compared = [*self.check.comparisons].index(self.comparison) + 1
        self.candidates = self.explain_by(self.check.edits, self.compared)

    def explain_by(self, edits: list[tuple[str, Edit]], compared: int | None) -> list[Candidate]:
        """Each edit that can run. All calls are made with those that fit the failing call."""
        failing = [call for call in self.calls if call[0].call == self.bad.call]
        explanations = self.explanations([edit for _, edit in edits], failing, self.bad.call)
        pairs = zip(edits, explanations, strict=True)
        candidates = [Candidate(*edit, first) for edit, first in pairs if first]
        fits = [c for c in candidates if all(c.first.same_values[:compared])]
        fits = [c for c in fits if c.first.same_senders]
        everywhere = [c.first for c in fits]
        if len(self.calls) > 1:
            everywhere = self.explanations([c.edit for c in fits], self.calls)
        for candidate, explanation in zip(fits, everywhere, strict=True):
            candidate.everywhere = explanation
        return candidates

    def explanations(self, edits: list[Edit], calls: Sequence, only: int | None = None) -> list:
        """How far each edit explains these calls; None for one that cannot run."""
        results = self.run([edit.apply(self.check.solution) for edit in edits], only)
        return [result and explain(self.check, calls, result) for result in results]

    def best(self, least: Extent) -> str:
        """The words of the edit that explains most, the first of equals, if it reaches `least`."""
        ranking = [(c.extent(self.compared), c.words) for c in self.candidates]
        extent, words = max(ranking, key=lambda place: place[0], default=(Extent.NOTHING, ""))
        return fill_words(words, self.bad) if extent >= least else ""

    def two_edits(self) -> str:
        """The words of the first two edits that together explain all values."""
        likely = sorted(
            self.candidates,
            key=lambda c: (all(c.first.same_values[: self.compared]), sum(c.first.same_values)),
            reverse=True,
        )
        pairs = (
            (f"{a.words}\n{b.words}", both)
            for a, b in combinations(likely, 2)
            if a.words != b.words and (both := self.combine(a.edit, b.edit))
        )
        candidates = self.explain_by([*islice(pairs, self.check.max_pairs)], None)
        complete = [c.words for c in candidates if c.extent(self.compared) >= Extent.ALL_VALUES]
        return fill_words(complete[0], self.bad) if complete else ""

    def combine(self, one: Edit, other: Edit) -> Edit | None:
        """Both edits; None if they cannot both be made."""
        for both in (one + other, other + one):
            with suppress(ValueError):
                both.apply(self.check.solution)
                return both
        return None
