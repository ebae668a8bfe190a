"""What an exercise's file says of its check: calls, what is right, and a table of mistakes.

The functions of a check are asked with what they name: `(case)` or `(case, rank)`. A case is one
call of the reader's function, on all ranks; by default a list with the argument of each rank.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from ddp_workbook.exercises.judging.values import in_words

PAUSE = 0.03  # seconds that some ranks come later than the others: what is not waited for, shows


@dataclass
class Seen:
    """One call on one rank, as it was observed there."""

    call: int  # 0 is the first at this world size
    rank: int
    case: Any
    came: Any  # what `observe` made of it
    wire: list[dict] = field(default_factory=list)  # rows of `record_collectives`, without rank
    changed: list[str] = field(default_factory=list)  # arguments that are not as they were
    overwritten: bool = False  # what it returned has changed by the time of the last call
    everyone: list["Seen"] = field(default_factory=list, repr=False)  # this call, on all ranks
    others: list["Seen"] = field(default_factory=list, repr=False)  # this rank, the calls before
    again: list["Seen"] = field(default_factory=list, repr=False)  # this rank, same case, not now
    value: Any = None  # what the look compares
    right: Any = None  # with what

    @property
    def size(self) -> int:
        """The world size."""
        return len(self.everyone)

    @property
    def ops(self) -> list[str]:
        """What it sent, by the functions' names, in order."""
        return [row["op"] for row in self.wire]


@dataclass(frozen=True)
class When:
    """A mistake that no value describes: fits where `holds(seen)`; asked of the first wrong call.

    Entries above it go first if they fit; of values, those that explain everything that was seen.
    """

    holds: Callable[[Seen], Any]


class Anything:
    """Equal to everything: for what a mistake leaves to chance."""

    def __repr__(self) -> str:
        return "ANY"


ANY = Anything()


@dataclass(frozen=True)
class Look:
    """One thing that is compared, on every rank in every call: what is right, and what is not.

    `right` and the mistakes give a value, or take (case, rank) and give it. Looks come one after
    the other: the first that finds something wrong speaks.
    """

    right: Any
    mistakes: Mapping[str, Any] = field(default_factory=dict)  # where to look -> value, or When
    otherwise: str = ""  # where to look if no mistake of the table fits
    of: Callable[[Seen], Any] = lambda seen: seen.came
    came: str | Callable[..., str] = "{value} {where}"
    required: str | Callable[..., str] = "{right} {there}"
    words: Callable[[Any], str] = in_words  # how a value is shown
    same: Callable[[Any, Any], bool] | None = None  # how values compare; `same.same` by default


@dataclass(kw_only=True)
class OnRanks:
    """A check on real ranks: the calls of each world size, one launch with all of them a size."""

    cases: Sequence | Callable[..., Sequence]  # of a world size; or lists, cut to that size
    looks: Sequence[Look]  # what is compared, one after the other
    proves: str  # what is known of an attempt that has passed
    called: str | Callable[..., str] = "{name}({given})"
    given: Callable[..., tuple] | None = None  # the arguments; run in the rank
    caller: Callable[..., Any] | None = None  # (function, *arguments), where a plain call won't do
    observe: Callable[..., Any] | None = None  # (returned, *arguments) -> what is compared; there
    sizes: tuple[int, ...] = (1, 2, 3, 4)
    most: int | None = None  # collectives, of each rank in a call
    too_much: str = "Each collective costs a round trip. Which of them could be spared?"
    keeps: str = ""  # where to look if an argument is changed; "" where it may be
    errors: Mapping[str, str] = field(default_factory=dict)  # in a message; "does not end": look
    pause: float = PAUSE
    group: bool = True
    may_seed: bool = False  # the function may change the seed of torch

    def cases_of(self, size: int) -> list:
        """The calls at this world size, in order."""
        if callable(self.cases):
            return list(self.cases(size))
        return [case[:size] for case in self.cases]

    def ranks_of(self, case: Any, size: int) -> int:
        """How many times a case is called for: once on each rank."""
        return size

    def arguments(self, case: Any, rank: int) -> tuple:
        """What the reader's function is called with."""
        if self.given is None:
            return (case[rank],)
        return tuple(ask(self.given, case, rank))


@dataclass(kw_only=True)
class Alone(OnRanks):
    """A check in one process, without a group. All cases are called in one launch, in order.

    `times(case)` says how often the function is called for a case, as if by so many ranks.
    """

    sizes: tuple[int, ...] = ()
    group: bool = False
    pause: float = 0.0
    times: Callable[[Any], int] = lambda case: 1

    def cases_of(self, size: int) -> list:
        """All calls."""
        return list(self.cases() if callable(self.cases) else self.cases)

    def ranks_of(self, case: Any, size: int) -> int:
        """As the case says."""
        return self.times(case)

    def arguments(self, case: Any, rank: int) -> tuple:
        """What the reader's function is called with; the case itself, if nothing else is said."""
        if self.given is None:
            return case if isinstance(case, tuple) else (case,)
        return tuple(ask(self.given, case, rank))


def ask(function: Any, *about: Any) -> Any:
    """What `function` gives for a case, and a rank if it asks for it; a value is itself."""
    if not callable(function):
        return function
    needed = [p for p in signature(function).parameters.values() if p.default is p.empty]
    return function(*about[: len(needed)])
