"""Name the collective behind each letter of this table.

Each letter stands for one call on four ranks: what each rank held before the call, whether the call
uses it or not, and what the call gave it. A dash means that the call promises this rank nothing. If
a call has a root (`src` or `dst`), the root is rank 0. A collective may occur more than once, or
not at all.

| call | rank 0 | rank 1 | rank 2 | rank 3 |
|---|---|---|---|---|
| **A** before | 1 2 3 4 | 10 20 30 40 | 100 200 300 400 | 1000 2000 3000 4000 |
| after | 1111 2222 3333 4444 | - | - | - |
| **B** before | 5 | 5 | 5 | 5 |
| after | 5 5 5 5 | 5 5 5 5 | 5 5 5 5 | 5 5 5 5 |
| **C** before | 1 2 3 4 | 10 20 30 40 | 100 200 300 400 | 1000 2000 3000 4000 |
| after | 1 10 100 1000 | 2 20 200 2000 | 3 30 300 3000 | 4 40 400 4000 |
| **D** before | 1 2 3 4 | 10 20 30 40 | 100 200 300 400 | 1000 2000 3000 4000 |
| after | 1 | 2 | 3 | 4 |
| **E** before | 7 8 | 7 1 | 2 8 | 3 0 |
| after | 7 8 | 7 8 | 7 8 | 7 8 |
| **F** before | 1 2 3 4 | 10 20 30 40 | 100 200 300 400 | 1000 2000 3000 4000 |
| after | 1111 | 2222 | 3333 | 4444 |
| **G** before | 2 9 | 8 1 | 5 4 | 3 6 |
| after | 8 9 | 8 9 | 8 9 | 8 9 |
| **H** before | 6 | 5 | 9 | 2 |
| after | 6 5 9 2 | - | - | - |

Return a dict with a name for each letter.

- The names are broadcast, scatter, reduce, gather, all_reduce, all_gather, reduce_scatter and
  all_to_all.
- reduce, all_reduce and reduce_scatter add up, unless you put AVG, PRODUCT, MIN or MAX after the
  name, as in "reduce PRODUCT".
- If several calls give the same result, each of them is accepted. Give one.
"""

import math
import re
from collections.abc import Callable
from statistics import fmean
from typing import Any

from ddp_workbook.judging import ANY, Comparison, Observation, Pattern, SingleProcessCheck
from ddp_workbook.judging.multiple_choice import (
    all_answered,
    choices_by_letter,
    first_wrong,
)

MINUTES = 15
HINTS = [
    "Three questions tell them apart. Does one rank get something, or do all? Does it get a piece, "
    "or everything? Are there numbers that no rank had before?",
    "Follow the 10 of rank 1 in A, C, D and F. Is it part of a sum now, is it in another place, or "
    "has nobody received it?",
    "In B every rank gets a 5 from each rank. In E all ranks get the numbers of one rank. In G the "
    "8 and the 9 come from different ranks: what is special about each in its column?",
]
MOVES = ("broadcast", "scatter", "gather", "all_gather", "all_to_all")
COMBINES = ("reduce", "all_reduce", "reduce_scatter")
OPS: dict[str, Callable] = {"SUM": sum, "AVG": fmean, "PRODUCT": math.prod, "MIN": min, "MAX": max}
EXTRA_WORDS = ("torch", "distributed", "dist", "op", "ReduceOp")  # words that may come with a name
CALL = "name_the_collective()"
CHOICES = f"one of the eight names; after one that combines numbers, perhaps {', '.join(OPS)}"
RankNumbers = list[Any]  # the numbers of each rank, a list of float; None for a dash


def name_the_collective() -> dict[str, str]:
    """For each letter, the name of the call, followed by its operation if that is not SUM."""
    ### BEGIN SOLUTION
    return {
        "A": "reduce",
        "B": "all_gather",
        "C": "all_to_all",
        "D": "scatter",
        "E": "broadcast",
        "F": "reduce_scatter",
        "G": "all_reduce MAX",
        "H": "gather",
    }
    ### GIVEN
    # return {  # TODO: a name in place of each None
    #     "A": None,
    #     "B": None,
    #     "C": None,
    #     "D": None,
    #     "E": None,
    #     "F": None,
    #     "G": None,
    #     "H": None,
    # }
    ### END SOLUTION


def cells(row: str) -> RankNumbers:
    """The numbers of each rank; None for a dash."""
    return [None if cell == "-" else [float(n) for n in cell.split()] for cell in row.split(" | ")]


ROWS = re.findall(r"\*\*(\w)\*\* before \| (.*) \|\n\| after \| (.*) \|", __doc__)
TABLE = {letter: (cells(before), cells(after)) for letter, before, after in ROWS}


def parse_name(name: str) -> str:
    """ "all_reduce SUM" for "dist.all_reduce". Raises ValueError for what is no such name."""
    words = [word for word in re.findall(r"\w+", name.replace("-", "_")) if word not in EXTRA_WORDS]
    call, op, *more = words if words[1:] else [*words, "SUM"]
    call = re.sub("(_into_tensor|_tensor|_single)$", "", call.lower())
    if more or op.upper() not in OPS or call not in (COMBINES if words[1:] else MOVES + COMBINES):
        raise ValueError(name)
    return f"{call} {op.upper()}"


def after(name: str, before: RankNumbers) -> RankNumbers:
    """What the call gives to each rank."""
    call, op = name.split()
    ranks = len(before)
    results = [float(OPS[op](column)) for column in zip(*before, strict=True)]
    all_numbers = [number for row in before for number in row]

    def pieces(row: list[float]) -> RankNumbers:
        length = len(row) // ranks
        return [row[rank * length : (rank + 1) * length] for rank in range(ranks)]

    row_pieces = [pieces(row) for row in before]
    by_name: dict[str, RankNumbers] = {
        "broadcast": [before[0]] * ranks,
        "scatter": row_pieces[0],
        "reduce": [results] + [None] * (ranks - 1),
        "gather": [all_numbers] + [None] * (ranks - 1),
        "all_reduce": [results] * ranks,
        "all_gather": [all_numbers] * ranks,
        "reduce_scatter": pieces(results),
        "all_to_all": [[n for row in row_pieces for n in row[rank]] for rank in range(ranks)],
    }
    return by_name[call]


def results_by_letter(obs: Observation) -> dict[str, Any]:
    """By letter, what the named call gives; ANY for letters without a name yet."""
    names = obs.actual.items()
    return {letter: after(name, TABLE[letter][0]) if name else ANY for letter, name in names}


def differs(how: Any) -> Pattern:
    """True if how(before, came, required) holds for the first letter that is wrong."""

    def holds(obs: Observation) -> bool:
        letter = first_wrong(obs)
        return how(TABLE[letter][0], obs.value[letter], obs.expected[letter])

    return Pattern(holds)


def describe_result(obs: Observation) -> str:
    """ "all_reduce gives 1 2 on every rank"."""
    letter = first_wrong(obs)
    name, rows = obs.actual[letter].removesuffix(" SUM"), obs.value[letter]
    if [] in rows:
        length = len(TABLE[letter][0][0])
        return f"{name} cannot cut {length} number{'s' * (length > 1)} into {len(rows)} pieces"
    return f"{name} gives {in_rows(rows)}"


def in_rows(rows: RankNumbers) -> str:
    """As the table shows them: "1 2 | -"."""
    return " | ".join("-" if row is None else " ".join(f"{n:g}" for n in row) for row in rows)


def has_new_number(rows: RankNumbers, before: RankNumbers) -> bool:
    """Whether any of the numbers was on no rank before."""
    numbers = {number for row in before for number in row}
    return any(number not in numbers for row in rows for number in row or ())


CHECK = SingleProcessCheck(
    cases=[()],
    call_text=lambda case, letter: (
        f"{letter} of the table, where the ranks hold {in_rows(TABLE[letter][0])}"
        if letter
        else CALL
    ),
    observe=lambda answer: choices_by_letter(CALL, answer, [*TABLE], CHOICES, parse_name),
    compare={
        "results": Comparison(
            "Choose one of the required numbers. Which rank held it before, and at which "
            "place in its row?",
            {letter: rows for letter, (_, rows) in TABLE.items()},
            select=results_by_letter,
            actual=describe_result,
            required=lambda obs: in_rows(obs.expected[first_wrong(obs)]),
        ),
        "answers": all_answered([*TABLE], "Where did the numbers go, and are there new ones?"),
    },
    mistakes={
        "A dash means that a rank gets nothing. Which ranks get something here, and which "
        "ones does your call give to?": differs(
            lambda before, actual, expected: (None in expected) != (None in actual)
        ),
        "How many numbers does each rank have before and after? Are they whole rows, "
        "pieces of rows, or the rows of all ranks?": differs(
            lambda before, actual, expected: len(actual[0]) != len(expected[0])
        ),
        "Did some rank hold the required numbers before, or are they combined from several ranks' "
        "numbers, and how? Without an operation after its name, a call adds up.": differs(
            lambda before, actual, expected: (
                has_new_number(actual, before) or has_new_number(expected, before)
            )
        ),
    },
    on_pass="each of the 8 calls gives what the table says",
)
