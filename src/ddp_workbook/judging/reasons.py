"""Finds the words of a verdict: which known mistake gives what this attempt has given."""

from collections.abc import Callable, Sequence
from itertools import combinations, islice

from ddp_workbook.judging.check import Comparison, DistributedCheck, Edit, Observation
from ddp_workbook.judging.diagnosis import Explanation, explain, fill_words

Run = Callable[..., list]  # (texts, number of a call or None) -> by text, what was seen


class Reasons:
    """Of one wrong attempt: the edits of the solution that explain it, as far as they do.

    `bad` is the first call and rank in which `comparison` finds something wrong; `run` runs texts.
    """

    def __init__(
        self,
        check: DistributedCheck,
        look: Comparison,
        bad: Observation,
        calls: Sequence[Sequence[Observation]],
        run: Run,
    ):
        self.check, self.look, self.bad = check, look, bad
        self.calls, self.run = calls, run
        self.so_far = list(check.comparisons).index(look) + 1  # looks up to the one that fails
        number = [call[0].call for call in calls].index(bad.call)
        self.first = calls[number : number + 1]  # the first wrong call
        self.beginning = self.explained(check.edits, self.first, bad.call)
        fitting = [edits for edits, one in self.beginning if self.fits(one) and one.same_senders]
        self.everywhere = (
            self.explained(fitting, calls)
            if len(calls) > 1
            else [(edits, one) for edits, one in self.beginning if edits in fitting]
        )

    def explained(
        self,
        edits: Sequence[tuple[str, Edit]],
        calls: Sequence[Sequence[Observation]],
        only: int | None = None,
    ) -> list[tuple[tuple[str, Edit], Explanation]]:
        """Each edit with how far it explains these calls, unless it cannot run."""
        tried = self.run([one.apply(self.check.solution) for _, one in edits], only)
        return [
            (one, explain(self.check, calls, obs))
            for one, obs in zip(edits, tried, strict=True)
            if obs is not None
        ]

    def fits(self, one: Explanation) -> bool:
        """Whether it explains the failing look, and is right where the attempt is: before it."""
        return all(one.same_values[: self.so_far])

    def single(self) -> str:
        """The words of the first edit that gives all that was seen; "" if there is none."""
        complete = [(words, one) for (words, _), one in self.everywhere if all(one.same_values)]
        exact = [words for words, one in complete if one.same_effects]
        return self.worded([*exact, *(words for words, one in complete)])

    def condition(self) -> str:
        """The words of the look's own table: of the first condition that holds."""
        holding = (words for words, one in self.look.mistakes.items() if one.matches(self.bad))
        return self.worded([*islice(holding, 1)])  # a later one may rely on those before it

    def pair(self) -> str:
        """The words of two edits that together give all that was seen; "" if there are none."""
        scores = {id(e): (self.fits(one), sum(one.same_values)) for (_, e), one in self.beginning}
        edits = [one for one in self.check.edits if id(one[1]) in scores]
        edits.sort(key=lambda one: scores[id(one[1])], reverse=True)
        pairs = (
            (f"{a}\n{b}", made)
            for (a, x), (b, y) in combinations(edits, 2)
            if a != b and (made := self.together(x, y))
        )
        both = [*islice(pairs, self.check.pairs)]
        fitting = [
            two
            for two, one in self.explained(both, self.first, self.bad.call)
            if all(one.same_values) and one.same_senders
        ]
        complete = self.explained(fitting, self.calls) if fitting else []
        return self.worded([words for (words, _), one in complete if all(one.same_values)])

    def together(self, one: Edit, other: Edit) -> Edit | None:
        """Both edits; None if they cannot both be made."""
        for two in (one + other, other + one):
            try:
                two.apply(self.check.solution)
            except ValueError:
                continue
            return two
        return None

    def of_this_comparison(self) -> str:
        """The words of an edit that gives all values up to this look; else the first call."""
        fitting = [words for (words, _), one in self.everywhere if self.fits(one)]
        begun = [
            words for (words, _), one in self.beginning if all(one.same_values) and one.same_senders
        ]
        return self.worded([*fitting, *begun])

    def worded(self, fitting: Sequence[str]) -> str:
        """The first of these words, filled in."""
        return fill_words(fitting[0], self.bad) if fitting else ""
