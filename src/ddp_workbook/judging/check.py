"""How an exercise's file describes its check: calls, comparisons, and a table of mistakes.

The functions of a check take `(case)` or `(case, rank)`, as their parameters say. A case is one
call of the reader's function on all ranks; by default it is a list with the argument of each rank.

A mistake is an edit of the solution. Nobody has to work out what a wrong program would give: if an
attempt is wrong, the edited solutions run on the same calls and ranks, and the first of them that
gives everything that was seen has its words in the verdict.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from inspect import getfile, signature
from pathlib import Path
from textwrap import dedent, indent
from types import ModuleType
from typing import Any, get_type_hints

from ddp_workbook.judging import source
from ddp_workbook.judging.comparison import (
    FORM,
    SOLUTION,
    Comparison,
    Pattern,
    fields_of,
    form_comparison,
    item_of_form,
)
from ddp_workbook.judging.forms import misfit
from ddp_workbook.judging.values import in_words, is_plain


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


@dataclass(frozen=True)
class RandomCall:
    """A case beside a check's own ones: its arguments are drawn at random, from this seed."""

    seed: int


def no_solution() -> None:
    """In the place of a solution that is not loaded."""


@dataclass(kw_only=True)
class DistributedCheck:
    """A check on real ranks; one launch makes all calls of a world size."""

    # Lists by rank, cut to the world size; named tuples, of which that is the field `ranks`; or a
    # function of the world size
    cases: Sequence | Callable[..., Sequence]
    on_pass: str  # what a passed attempt has shown
    # Where to look if the value is wrong and no mistake fits; of a value with several parts: by
    # part, in the order in which they are compared. A Comparison says more than where to look.
    compare: str | Comparison | Mapping[str, str | Comparison]
    # where to look -> edit(s) of the solution, or Pattern
    mistakes: Mapping[str, Any] = field(default_factory=dict)
    # The call: "{call}" is the function with its arguments, "{values}" the case
    call_text: str | Callable[..., str] = ""
    make_args: Callable[..., tuple] | None = None  # the arguments; run in the rank
    caller: Callable[..., Any] | None = None  # (function, *arguments), instead of a plain call
    observe: Callable[..., Any] | None = None  # (returned, *arguments) -> what is compared; there
    sizes: tuple[int, ...] = (1, 2, 3, 4)
    max_collectives: int | None = None  # collectives of each rank in a call
    unchanged_hint: str = ""  # where to look if an argument is changed; "" if it may be
    # Part of an error's message, "hangs", "does not end" or "too many collectives" -> where to look
    errors: Mapping[str, str] = field(default_factory=dict)
    network: str | None = None  # that the ranks communicate on, unless each has a GPU
    may_seed: bool = False  # the function may change the seed of torch
    function: Callable = field(default=no_solution, init=False)  # the solution; see `load`
    seeds: tuple[int, ...] = field(default=(), init=False)  # of each `RandomCall` after the cases
    random_args: Callable[[random.Random], tuple] | None = None  # see `SingleProcessCheck`
    group = True

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """The comparisons, in order, each with the name of its part."""
        parts = self.compare if isinstance(self.compare, Mapping) else {"": self.compare}
        patterns = {words: p for words, p in self.mistakes.items() if isinstance(p, Pattern)}
        if strangers := {pattern.part for pattern in patterns.values()} - {*parts, ""}:
            raise ValueError(f"a pattern is about {strangers}; the parts are {[*parts]}")
        items = [
            name for name in parts if name != FORM and not getattr(parts[name], "select", None)
        ]
        comparisons = []
        for name, part in parts.items():
            comparison = part if isinstance(part, Comparison) else Comparison(part)
            about = ("", name) if name != FORM else (name,)
            own = {words: pattern for words, pattern in patterns.items() if pattern.part in about}
            if name == FORM:
                keys = [key for key in parts if key != FORM]
                comparison = form_comparison(comparison, self.returns, keys)
            elif name in items and FORM in parts:
                select = item_of_form(self.returns, name, items.index(name))
                comparison = replace(comparison, select=select)
            own = {**own, **comparison.patterns}
            comparisons.append(replace(comparison, name=name, patterns=own))
        return comparisons

    @property
    def name(self) -> str:
        """The exercise's name, which is that of the function."""
        return self.function.__name__

    @cached_property
    def solution(self) -> str:
        """The cell that solves the exercise."""
        return source.solution(Path(getfile(self.function)).read_text("utf-8"), self.name)

    def describe_call(self, case: Any, rank: int, part: str = "") -> str:
        """A call in words; `part` is what is wrong of a value with parts."""
        if isinstance(case, RandomCall):
            return self.call_in_words(case, rank)
        if callable(self.call_text):
            return resolve(self.call_text, case, part)
        if self.call_text:
            call = self.call_in_words(case, rank) if "{call}" in self.call_text else ""
            return self.call_text.format(call=call, case=case, values=in_words(case))
        return self.call_in_words(case, rank)

    def call_in_words(self, case: Any, rank: int) -> str:
        """The function with its arguments: "name=value" if the value is plain, else the name."""
        parameters, types = signature(self.function).parameters, get_type_hints(self.function)
        values = {
            name: value
            for name, value in fields_of(case).items()
            if name in parameters and not misfit(value, types[name])
        }
        if not self.caller and not self.group:  # there, arguments are made without other ranks
            values = dict(zip(parameters, self.arguments(case, rank), strict=False))
        arguments = [
            f"{name}={in_words(values[name])}"
            if name in values and is_plain(values[name])
            else name
            for name in parameters
        ]
        return f"{self.name}({', '.join(arguments)})"

    @property
    def returns(self) -> Any:
        """The type that the function is annotated to return."""
        return get_type_hints(self.function)["return"]

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
    def max_pairs(self) -> int:
        """How many pairs of mistakes are tried together; fewer if each takes long."""
        return 40 if self.group or self.caller else 400

    @cached_property
    def needs_solution(self) -> bool:
        """Whether a comparison is with what the solution gives."""
        cases = self.cases_of(max(self.sizes, default=0))
        known = fields_of(cases[0]) if cases else {}
        by_solution = any(c.expected is SOLUTION and c.name not in known for c in self.comparisons)
        return by_solution or self.random_args is not None

    def cases_of(self, size: int) -> list:
        """The calls at this world size, in order."""
        if callable(self.cases):
            return list(self.cases(size))
        return [
            case._replace(ranks=size) if hasattr(case, "ranks") else case[:size]
            for case in self.cases
        ]

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
    `random_args` draws the arguments of a call that the task allows, short ones if it can: beside
    its cases, a check compares 200 such calls with what the solution gives.
    """

    sizes: tuple[int, ...] = ()
    times: Callable[[Any], int] = lambda case: 1
    group = False

    def cases_of(self, size: int) -> list:
        """The cases, which are the same at every world size."""
        cases = list(self.cases() if callable(self.cases) else self.cases)
        return [*cases, *map(RandomCall, self.seeds)]

    def ranks_of(self, case: Any, size: int) -> int:
        """How often the function is called for a case, as `times` says."""
        return 1 if isinstance(case, RandomCall) else self.times(case)

    def arguments(self, case: Any, rank: int) -> tuple:
        """The arguments of the reader's function; by default the case itself."""
        if isinstance(case, RandomCall) and self.random_args:
            return self.random_args(random.Random(case.seed))
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
