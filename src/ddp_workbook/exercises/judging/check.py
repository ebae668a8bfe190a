"""How an exercise's file describes its check: calls, right values, and a table of mistakes.

The functions of a check take `(case)` or `(case, rank)`, as their parameters say. A case is one
call of the reader's function on all ranks; by default it is a list with the argument of each rank.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from ddp_workbook.exercises.judging.values import in_words

PAUSE = 0.03  # seconds by which some ranks are late, so that a missing wait shows


@dataclass
class Seen:
    """One call on one rank, as it was observed there."""

    call: int  # number; 0 is the first at this world size
    rank: int
    case: Any
    came: Any  # what `observe` returned
    wire: list[dict] = field(default_factory=list)  # rows of `record_collectives`, without rank
    changed: list[str] = field(default_factory=list)  # names of changed arguments
    overwritten: bool = False  # its result had changed by the time of the last call
    everyone: list["Seen"] = field(default_factory=list, repr=False)  # this call, on all ranks
    others: list["Seen"] = field(default_factory=list, repr=False)  # this rank, earlier calls
    again: list["Seen"] = field(default_factory=list, repr=False)  # this rank and case, other calls
    value: Any = None  # what the look compares
    right: Any = None  # what it must be

    @property
    def size(self) -> int:
        """The world size."""
        return len(self.everyone)

    @property
    def ops(self) -> list[str]:
        """The names of the functions that it communicated with, in order."""
        return [row["op"] for row in self.wire]


@dataclass(frozen=True)
class When:
    """A mistake that no value describes: it fits if `holds(seen)` for the first wrong call.

    Entries above it take precedence if they fit; values must then explain everything that was seen.
    """

    holds: Callable[[Seen], Any]


class Anything:
    """Equal to everything, for the part of a value that a mistake leaves to chance."""

    def __repr__(self) -> str:
        return "ANY"


ANY = Anything()


@dataclass(frozen=True)
class Look:
    """One comparison, made on every rank in every call: what is right, and the known mistakes.

    `right` and the mistakes are values, or functions of (case, rank) that return them. Looks are
    made one after another: the first that finds something wrong gives the verdict.
    """

    right: Any
    mistakes: Mapping[str, Any] = field(default_factory=dict)  # where to look -> value, or When
    otherwise: str = ""  # where to look if no mistake of the table fits
    of: Callable[[Seen], Any] = lambda seen: seen.came
    came: str | Callable[..., str] = "{value} {where}"
    required: str | Callable[..., str] = "{right} {there}"
    words: Callable[[Any], str] = in_words  # shows a value
    same: Callable[[Any, Any], bool] | None = None  # how values compare; `same.same` by default
    timing_dependent: bool = False  # threads may win the race in one call and lose it in the next


@dataclass(kw_only=True)
class OnRanks:
    """A check on real ranks; one launch makes all calls of a world size."""

    cases: Sequence | Callable[..., Sequence]  # function of the world size; or lists, cut to it
    looks: Sequence[Look]  # the comparisons, in order
    proves: str  # what a passed attempt has shown
    called: str | Callable[..., str] = "{name}({given})"
    given: Callable[..., tuple] | None = None  # the arguments; run in the rank
    caller: Callable[..., Any] | None = None  # (function, *arguments), instead of a plain call
    observe: Callable[..., Any] | None = None  # (returned, *arguments) -> what is compared; there
    sizes: tuple[int, ...] = (1, 2, 3, 4)
    most: int | None = None  # collectives of each rank in a call
    too_much: str = "Each collective costs a round trip. Which of them is not needed?"
    keeps: str = ""  # where to look if an argument is changed; "" if it may be
    errors: Mapping[str, str] = field(default_factory=dict)  # part of a message -> where to look
    pause: float = PAUSE
    group: bool = True
    may_seed: bool = False  # the function may change the seed of torch

    def cases_of(self, size: int) -> list:
        """The calls at this world size, in order."""
        if callable(self.cases):
            return list(self.cases(size))
        return [case[:size] for case in self.cases]

    def ranks_of(self, case: Any, size: int) -> int:
        """How many calls a case makes: one on each rank."""
        return size

    def arguments(self, case: Any, rank: int) -> tuple:
        """The arguments of the reader's function."""
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
        """As `times` says."""
        return self.times(case)

    def arguments(self, case: Any, rank: int) -> tuple:
        """The arguments of the reader's function; by default the case itself."""
        if self.given is None:
            return case if isinstance(case, tuple) else (case,)
        return tuple(ask(self.given, case, rank))


def ask(function: Any, *about: Any) -> Any:
    """`function` of a case, and of a rank if it takes one; a plain value stands for itself."""
    if not callable(function):
        return function
    needed = [p for p in signature(function).parameters.values() if p.default is p.empty]
    return function(*about[: len(needed)])
