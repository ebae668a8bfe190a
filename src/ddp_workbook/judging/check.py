"""How an exercise's file describes its check: calls, comparisons, and a table of mistakes.

The functions of a check take `(case)` or `(case, rank)`, as their parameters say. A case is one
call of the reader's function on all ranks; by default it is a list with the argument of each rank.

A mistake is an edit of the solution. Nobody has to work out what a wrong program would give: if an
attempt is wrong, the edited solutions run on the same calls and ranks, and the first of them that
gives everything that was seen has its words in the verdict.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from inspect import getfile, signature
from pathlib import Path
from textwrap import dedent, indent
from types import ModuleType
from typing import Any

from ddp_workbook.judging import source
from ddp_workbook.judging.values import in_words


class CheckFailed(Exception):
    """The attempt does not do what the task asks: called, came back, required, where to look.

    Each of the four sentences may take several lines, and none contains the solution. A check
    raises this, or in a rank the function through which the check calls the attempt.
    """

    def __init__(self, called: str, came_back: str, required: str, look_at: str):
        super().__init__(called, came_back, required, look_at)

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The sentences with their headings, as a verdict shows them."""
        headings = ("called", "came back", "required", "look at")
        return list(zip(headings, self.args, strict=True))


@dataclass
class Observation:
    """One call on one rank, as it was observed there."""

    call: int  # number; 0 is the first at this world size
    rank: int
    case: Any
    actual: Any  # what `observe` returned
    communication: list[dict] = field(
        default_factory=list
    )  # rows of `record_collectives`, without rank
    changed_arguments: list[str] = field(default_factory=list)  # names of changed arguments
    overwritten: bool = False  # its result had changed by the time of the last call
    nondeterministic: bool = False  # it used an order, or a buffer, that may differ the next time
    all_ranks: list["Observation"] = field(
        default_factory=list, repr=False
    )  # this call, on all ranks
    repeats: list["Observation"] = field(
        default_factory=list, repr=False
    )  # this rank and case, other calls
    solution: "Observation | None" = field(default=None, repr=False)  # the solution, here and now
    value: Any = None  # what is compared
    expected: Any = None  # what it must be

    @property
    def size(self) -> int:
        """The world size."""
        return len(self.all_ranks)

    @property
    def ops(self) -> list[str]:
        """The names of the functions that it communicated with, in order."""
        return [row["op"] for row in self.communication]


@dataclass(frozen=True)
class Pattern:
    """A mistake that is no edit of the solution: it fits if `matches(obs)` of the first wrong call.

    Its words state only what `matches` has tested, or ask. Edits that explain all come first.
    """

    matches: Callable[[Observation], Any]


@dataclass(frozen=True)
class Edit:
    """A mistake: parts of the solution's cell, each with what a reader may have instead.

    A part that is None stands for all lines of the function's body.
    """

    changes: tuple[tuple[str | None, str], ...]

    def __add__(self, other: "Edit") -> "Edit":
        """Both mistakes at once."""
        return Edit(self.changes + other.changes)

    def apply(self, cell: str) -> str:
        """The edited cell. Raises ValueError unless each part is there exactly once."""
        for old, new in self.changes:
            if old is None:
                head = re.search(r"\A.*^def .*?\n    \"\"\".*?\"\"\"\n", cell, re.M | re.S)
                head_text = head[0] if head else ""
                cell = head_text + indent(dedent(new).strip("\n"), "    ") + "\n"
                continue
            if (count := cell.count(old)) != 1:
                where = f"is there {count} times" if count else "is not in the solution"
                raise ValueError(f"edit: {old!r} {where}")
            cell = cell.replace(old, new)
        return cell


def edit(old: str, new: str, *more: str) -> Edit:
    """The solution with `new` in the place of `old`; `more` are further such pairs, in order.

    Each `old` stands in the solution's cell exactly once when its turn comes. The cell has imports,
    the line of `def`, and the function's lines with their margin.
    """
    words = (old, new, *more)
    return Edit(tuple(zip(words[::2], words[1::2], strict=True)))


def body(lines: str) -> Edit:
    """Other lines in the place of all that the function does, for another way to a mistake.

    They have a margin of their own, and may use the solution's imports.
    """
    return Edit(((None, lines),))


class Anything:
    """Equal to everything, for the part of a value that a mistake leaves to chance."""

    def __repr__(self) -> str:
        return "ANY"


ANY = Anything()


class Solution:
    """In the place of a right value: what the solution gives on the same call and rank."""

    def __repr__(self) -> str:
        return "SOLUTION"


SOLUTION = Solution()


@dataclass(frozen=True)
class Comparison:
    """One comparison, made on every rank in every call.

    `expected` is a value, or a function of (case, rank) that returns one: a second way to the
    answer, where that is short. Otherwise it is what the solution gives.
    Comparisons are made one after another: the first that finds something wrong gives the
    verdict.
    """

    expected: Any = SOLUTION
    mistakes: Mapping[str, Any] = field(default_factory=dict)  # where to look -> Pattern
    hint: str | Callable[[Observation], str] = ""  # where to look if no mistake fits
    select: Callable[[Observation], Any] = lambda obs: obs.actual
    actual: str | Callable[..., str] = "{value} {where}"
    required: str | Callable[..., str] = "{expected} {there}"
    show: Callable[[Any], str] = in_words  # shows a value
    equal: Callable[[Any, Any], bool] | None = (
        None  # how values compare; `equality.values_equal` by default
    )
    timing_dependent: bool = False  # threads may win the race in one call and lose it in the next


def no_solution() -> None:
    """In the place of a solution that is not loaded."""


@dataclass(kw_only=True)
class DistributedCheck:
    """A check on real ranks; one launch makes all calls of a world size."""

    cases: Sequence | Callable[..., Sequence]  # function of the world size; or lists, cut to it
    on_pass: str  # what a passed attempt has shown
    comparisons: Sequence[Comparison] = ()  # the comparisons, in order; without one, what came back
    expected: Any = SOLUTION  # of the only comparison, if `comparisons` is empty; so is `hint`
    hint: str = ""
    mistakes: Mapping[str, Any] = field(
        default_factory=dict
    )  # where to look -> edit(s), or Pattern
    call_text: str | Callable[..., str] = "{name}({make_args})"
    make_args: Callable[..., tuple] | None = None  # the arguments; run in the rank
    caller: Callable[..., Any] | None = None  # (function, *arguments), instead of a plain call
    observe: Callable[..., Any] | None = None  # (returned, *arguments) -> what is compared; there
    sizes: tuple[int, ...] = (1, 2, 3, 4)
    max_collectives: int | None = None  # collectives of each rank in a call
    collectives_hint: str = "Each collective costs a round trip. Which of them is not needed?"
    unchanged_hint: str = ""  # where to look if an argument is changed; "" if it may be
    errors: Mapping[str, str] = field(default_factory=dict)  # part of a message -> where to look
    group: bool = True
    network: str | None = None  # that the ranks communicate on, unless each has a GPU
    may_seed: bool = False  # the function may change the seed of torch
    pairs: int = 40  # of mistakes that are tried together; fewer if each of them takes long
    function: Callable = field(default=no_solution, init=False)  # the solution; see `load`

    def __post_init__(self):
        patterns = {words: p for words, p in self.mistakes.items() if isinstance(p, Pattern)}
        self.comparisons = self.comparisons or [Comparison(expected=self.expected, hint=self.hint)]
        if patterns and len(self.comparisons) > 1:
            raise ValueError(f"a Pattern belongs to one of the looks: {[*patterns]}")
        if patterns:
            self.comparisons = [
                replace(self.comparisons[0], mistakes={**self.comparisons[0].mistakes, **patterns})
            ]

    @property
    def name(self) -> str:
        """The exercise's name, which is that of the function."""
        return self.function.__name__

    @cached_property
    def solution(self) -> str:
        """The cell that solves the exercise."""
        return source.solution(Path(getfile(self.function)).read_text("utf-8"), self.name)

    def describe_call(self, case: Any, rank: int, part: str = "") -> str:
        """A call in words; `part` is the key in question if a dict is compared."""
        if callable(self.call_text):
            return resolve(self.call_text, case, part)
        arguments = self.arguments(case, rank) if "{make_args}" in self.call_text else ()
        arguments_text = ", ".join(map(in_words, arguments))
        return self.call_text.format(
            name=self.name, case=in_words(case), make_args=arguments_text, part=part
        )

    @property
    def edits(self) -> list[tuple[str, Edit]]:
        """The mistakes that are edits of the solution, in order, each with its words."""
        return [
            (words, edit)
            for words, mistake in self.mistakes.items()
            for edit in (mistake if isinstance(mistake, list) else [mistake])
            if isinstance(edit, Edit)
        ]

    @property
    def needs_solution(self) -> bool:
        """Whether a comparison is with what the solution gives."""
        return any(comparison.expected is SOLUTION for comparison in self.comparisons)

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
        if self.make_args is None:
            return (case[rank],)
        return tuple(resolve(self.make_args, case, rank))


@dataclass(kw_only=True)
class SingleProcessCheck(DistributedCheck):
    """A check in one process, without a group. All cases are called in one launch, in order.

    `times(case)` says how often the function is called for a case, as if by so many ranks.
    """

    sizes: tuple[int, ...] = ()
    group: bool = False
    pairs: int = 400
    times: Callable[[Any], int] = lambda case: 1

    def cases_of(self, size: int) -> list:
        """The cases, which are the same at every world size."""
        return list(self.cases() if callable(self.cases) else self.cases)

    def ranks_of(self, case: Any, size: int) -> int:
        """How often the function is called for a case, as `times` says."""
        return self.times(case)

    def arguments(self, case: Any, rank: int) -> tuple:
        """The arguments of the reader's function; by default the case itself."""
        if self.make_args is None:
            return case if isinstance(case, tuple) else (case,)
        return tuple(resolve(self.make_args, case, rank))


def exercise_module(name: str) -> ModuleType:
    """The exercise's file, imported."""
    return import_module(f"ddp_workbook.exercises.{source.path_of(name).parent.name}.{name}")


def load(name: str) -> DistributedCheck:
    """The check of the exercise `name`, with its solution."""
    module = exercise_module(name)
    module.CHECK.function = getattr(module, name)
    return module.CHECK


def resolve(function: Any, *about: Any) -> Any:
    """`function` of a case, and of a rank if it takes one; a plain value stands for itself."""
    if not callable(function):
        return function
    needed = [p for p in signature(function).parameters.values() if p.default is p.empty]
    return function(*about[: len(needed)])
