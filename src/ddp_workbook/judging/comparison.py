"""What is compared of a call: values with their hints, and mistakes that fit a value.

A check names the parts of what came back, in the order in which they are compared. What is said of
a wrong part is made of that name; see `wording.py`.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from string import Formatter
from typing import Any, get_args, get_origin

from ddp_workbook.judging.forms import in_words_of_type, misfit, number
from ddp_workbook.judging.values import in_words


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

    Its words state only what `matches` has tested, or ask. Edits that explain all come first. It is
    about one part of what is compared, if it names that, else about all.
    """

    matches: Callable[[Observation], Any]
    part: str = ""


class Solution:
    """In the place of a right value: what the solution gives on the same call and rank."""

    def __repr__(self) -> str:
        return "SOLUTION"


SOLUTION = Solution()
FORM = "form"  # the part that is compared with the function's annotation
OTHER_KEYS, OTHER_KEYS_HINT = "a dict with other keys", "Which keys does the task name?"
# What words may hold: the first wrong value and the right one, on which ranks they are, ...
TEMPLATE_FIELDS = {"value", "expected", "where", "there", "rank", "size", "part"}
# ... a line for each rank, and a line with the names of the other wrong parts
TEMPLATE_FIELDS |= {"all_values", "all_expected", "also_wrong"}


@dataclass(frozen=True)
class Comparison:
    """One comparison, made on every rank in every call.

    `expected` is a value, or a function of (case, rank) that returns one: a second way to the
    answer, where that is short. Otherwise it is the case's field of the part's name, if there is
    one, or else what the solution gives.
    Comparisons are made one after another: the first that finds something wrong gives the
    verdict.

    What came back and what is required are put into words by the name of the part, unless `actual`
    or `required` says it better: words with some of TEMPLATE_FIELDS, or a function of what was
    seen.
    """

    # Where to look if no mistake fits; of a dict also by its keys
    hint: str | Mapping[str, str] | Callable[[Observation], str] = ""
    expected: Any = SOLUTION
    select: Callable[[Observation], Any] | None = None  # instead of the part of what came back
    actual: str | Callable[[Observation], str] = ""
    required: str | Callable[[Observation], str] = ""
    equal: Callable[[Any, Any], bool] | None = None  # by default `equality.values_equal`
    timing_dependent: bool = False  # threads may win the race in one call and lose it in the next
    # These two the check knows: the part's name, and the patterns of its table that are about it
    name: str = field(default="", kw_only=True)
    patterns: Mapping[str, Pattern] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        for words in (self.actual, self.required):
            fields = Formatter().parse(words) if isinstance(words, str) else ()
            for _, name, how, conversion in fields:
                if name is not None and (name not in TEMPLATE_FIELDS or how or conversion):
                    raise ValueError(f"{words!r}: values are put into words before they come here")

    def value_of(self, obs: Observation) -> Any:
        """What is compared of a call on a rank. Raises whatever an unforeseen value makes it."""
        if self.select:
            return self.select(obs)
        if self.name and isinstance(obs.actual, Mapping):
            return obs.actual[self.name]
        return fields_of(obs.actual).get(self.name, obs.actual)


def at_most(
    hint: str,
    expected: Any,
    select: Callable[[Observation], Any] | None = None,
    required: str = "{expected} at most {there}",
) -> Comparison:
    """Whether a number is at most the right one."""
    return Comparison(hint, expected, select, required=required, equal=operator.le)


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a named tuple or a dataclass by name; {} for anything else."""
    if is_dataclass(value) and not isinstance(value, type):
        return dict(vars(value))
    return value._asdict() if hasattr(value, "_asdict") else {}


def item_of_form(returns: Any, name: str, place: int) -> Callable[[Observation], Any] | None:
    """What selects a part of a dict of numbers, or an item of a tuple that may be None."""
    if returns in (dict[str, int], dict[str, float]):
        return lambda obs: number(obs.actual[name])
    if any(get_origin(one) is tuple for one in (returns, *get_args(returns))):
        return lambda obs: obs.actual if obs.actual is None else obs.actual[place]
    return None


def form_comparison(comparison: Comparison, returns: Any, keys: list[str]) -> Comparison:
    """Whether what came back is of the annotated type; a dict has the other parts as keys."""
    is_dict = get_origin(returns) is dict

    def whole(obs: Observation) -> Any:
        return comparison.select(obs) if comparison.select else obs.actual

    def form(obs: Observation) -> str | None:
        value = whole(obs)
        if is_dict and isinstance(value, Mapping) and {*value} != {*keys}:
            return OTHER_KEYS
        problem = misfit(value, returns)
        return None if problem == "None" else problem

    def actual(obs: Observation) -> str:
        here = f"on rank {obs.rank}: " if obs.size > 1 else ""
        return here + ", ".join(filter(None, [in_words(whole(obs)), obs.value]))

    with_keys = "a dict with the keys " + ", ".join(f'"{key}"' for key in keys)
    return replace(
        comparison,
        hint=comparison.hint or f"Which of your lines makes {in_words_of_type(returns)}?",
        expected="",
        select=form,
        actual=comparison.actual or actual,
        required=comparison.required or (with_keys if is_dict else in_words_of_type(returns)),
        patterns={OTHER_KEYS_HINT: Pattern(lambda obs: obs.value == OTHER_KEYS)} if is_dict else {},
    )
