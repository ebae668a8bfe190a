"""Decide which neighbouring blocks of a model become one unit of `fully_shard`.

A unit is gathered and freed as a whole. In each step it costs two all-gathers and a reduce-scatter,
so few units are better; but a large unit takes much memory while it is gathered. `sizes[i]` is the
size of block i in MiB, and `limit` is the memory for one unit. (The caller has set aside memory for
the buffers of its neighbours, so only one unit counts here.) Return the units as a list of lists of
block numbers, such as `[[0, 1], [2]]`.

- Each block is in one unit. Units hold neighbours and come in the order of the model.
- The sizes in a unit add up to at most `limit`. Exactly `limit` is fine.
- There are as few units as possible. If several answers have equally few, any of them is right.
- If a block is larger than `limit`, raise a ValueError whose message names the first such block, in
  the form `block 3`.
- Sizes are 0 or more and may have fractions. There may be no blocks, which need no units, or
  hundreds of them. Do not change `sizes`.
"""

import random
import re
from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

from ddp_workbook.judging import (
    Comparison,
    Observation,
    Pattern,
    SingleProcessCheck,
    edit,
    in_words,
)

MINUTES = 8
HINTS = [
    "Go from block to block. When do you have to begin another unit?",
    "Begin a unit only when the next block does not fit into the last one. Could beginning earlier "
    "ever help? If a unit ends earlier, the next one begins earlier, and so do all others.",
    "Keep the units and the size of the last one. A block that does not fit becomes the first of a "
    "new unit. At the very beginning there is no last unit.",
]


def choose_wraps(sizes: list[float], limit: float) -> list[list[int]]:
    """Return as few units of neighbouring blocks as possible, each at most `limit` MiB."""
    ### BEGIN SOLUTION
    units: list[list[int]] = []
    filled = inf  # of the last unit; where there is none, nothing fits into it
    for block, size in enumerate(sizes):
        if size > limit:
            raise ValueError(f"block {block} has {size} MiB, and a unit at most {limit} MiB")
        if filled + size > limit:
            units.append([])
            filled = 0
        units[-1].append(block)
        filled += size
    return units
    ### END SOLUTION


class Blocks(NamedTuple):
    """The size of each block in MiB, and the most that a unit may have."""

    sizes: list[float]
    limit: float

    @property
    def large(self) -> list[int]:
        """Blocks that fit into no unit."""
        return [block for block, size in enumerate(self.sizes) if size > self.limit]


class ErrorText(str):
    """In place of what came back: a ValueError and its message."""


RANDOM = random.Random(1)
MIXED_SIZES = Blocks([10.5, 20, 12.5, 30.25, 14, 16.5, 11], 45.0)
CASES = [
    MIXED_SIZES,
    Blocks([14, 14, 14, 14, 14], 28),  # exactly met
    Blocks([21, 12, 30.5, 30.75, 12.25, 12], 31),  # above the limit by a fraction
    Blocks([12, 10, 10, 10, 12, 30, 12], 32),  # equal numbers of blocks do not do
    Blocks([0, 25, 0, 25, 0, 0], 25),
    Blocks([0, 0, 0], 0),
    Blocks([40, 12, 15, 40, 10, 11, 40], 40),  # large ones at both ends
    Blocks([], 10),
    Blocks([17], 17),
    Blocks([23, 11, 12, 47, 19, 52], 45),  # no answer
    Blocks([0, 0.25, 0], 0),
    Blocks([26, 27.5], 26.5),
    Blocks([9, 1, 10, 2], 10),  # a full unit, then a block that fills one by itself
    *(Blocks(RANDOM.choices(range(9), k=2 + n % 8), 8 + n % 5) for n in range(200)),
    Blocks([RANDOM.randrange(41) / 4 for _ in range(300)], 31),
    MIXED_SIZES,
]


def call_and_observe(function: Callable, sizes: list[float], limit: float) -> Any:
    """What comes back, or the ValueError that is raised."""
    try:
        return function(sizes, limit)
    except ValueError as error:
        return ErrorText(f"ValueError: {error}")


def as_lists(returned: Any, *_: Any) -> Any:
    """Lists, where units are tuples or ranges."""
    if type(returned) not in (list, tuple):
        return returned
    return [list(unit) if isinstance(unit, tuple | range) else unit for unit in returned]


def if_solvable(select: Callable[[Observation], Any]) -> Callable[[Observation], Any]:
    """What a look compares in cases that have an answer; elsewhere nothing."""
    return lambda obs: None if obs.case.large else select(obs)


def too_large(obs: Observation) -> str:
    """The first unit that is larger than the limit, in words; "" if there is none."""
    totals = [(unit, sum(obs.case.sizes[block] for block in unit)) for unit in obs.actual]
    words = (
        f"the unit {in_words(unit)}, whose blocks add up to {in_words(total)} MiB"
        for unit, total in totals
        if total > obs.case.limit
    )
    return next(words, "")


def missing_error(obs: Observation) -> str:
    """What came instead of a ValueError that names the first block that fits into no unit."""
    patterns = [rf"\bblock {block}\b" for block in obs.case.large[:1]]
    message = obs.actual if isinstance(obs.actual, ErrorText) else ""
    return (
        ""
        if all(re.search(pattern, message, re.I) for pattern in patterns)
        else in_words(obs.actual)
    )


TOO_LARGE = "if filled + size > limit"
CHECK = SingleProcessCheck(
    cases=CASES,
    make_args=lambda case: ([*case.sizes], case.limit),
    caller=call_and_observe,
    observe=as_lists,
    compare={
        "form": Comparison(
            "Which of your lines makes a list of lists? Where does a unit end?",
            select=lambda obs: [] if obs.case.large else obs.actual,
            actual=lambda obs: in_words(obs.actual),
            required="a list of lists of block numbers",
        ),
        "blocks": Comparison(
            "Which blocks are in no unit, and which numbers belong to no block?",
            select=if_solvable(lambda obs: [block for unit in obs.actual for block in unit]),
            actual=lambda obs: in_words(obs.actual),
            required=lambda obs: (
                f"each of {len(obs.expected)} blocks once, in order, counted from 0"
            ),
        ),
        "too large": Comparison(
            "Add up the sizes of this unit's blocks. Where does the sum pass the limit?",
            select=if_solvable(too_large),
            actual="{value}",
            required=lambda obs: f"{in_words(obs.case.limit)} MiB at most in each unit",
        ),
        "units": Comparison(
            "Which unit begins with a block that would still fit into the unit before it?",
            select=if_solvable(lambda obs: len(obs.actual)),
            actual=lambda obs: f"{in_words(obs.actual)}, number of units: {obs.value}",
            required="number of units: {expected}",
        ),
        "error": Comparison(
            "Anyone who reads this message wants to know which block it is, counted from 0.",
            "",
            missing_error,
            actual="{value}",
            required=lambda obs: f"a ValueError whose message holds `block {obs.case.large[0]}`",
        ),
    },
    mistakes={
        "The last unit is missing. Which line adds it after the last block?": edit(
            "return units", "return units[:-1]"
        ),
        "The blocks are counted from 1. Which number does the first one have?": edit(
            "enumerate(sizes)", "enumerate(sizes, start=1)"
        ),
        "Does the first block of a unit count? What is the size of a unit that has just begun?": [
            edit("filled = 0", "filled = -size"),
            edit("filled = 0", "filled = -size if units[1:] else 0"),
        ],
        "Is the limit compared before or after the block is added?": [
            edit(TOO_LARGE, "if filled > limit"),
            edit(TOO_LARGE, "if filled >= limit"),
        ],
        # Before the next one: where each block has half of the limit, both return the same units.
        "A unit may be exactly as large as the limit.": edit(
            TOO_LARGE, "if filled + size >= limit"
        ),
        "Each block is a unit of its own. Which ones fit together?": edit(TOO_LARGE, "if True"),
        "There are no blocks here, so no largest block and no units.": Pattern(
            lambda obs: isinstance(obs.actual, ErrorText) and not obs.case.sizes, "form"
        ),
        "Each block fits into a unit. Which of your lines finds one that is too large?": Pattern(
            lambda obs: isinstance(obs.actual, ErrorText), "form"
        ),
        "A unit holds the numbers of its blocks. Are these their sizes?": Pattern(
            lambda obs: "a float in it" in obs.value, "form"
        ),
        "A block is there twice. To which unit does a block that no longer fits belong?": Pattern(
            lambda obs: len(set(obs.value)) < len(obs.value), "blocks"
        ),
        "Every block is there. Units hold neighbours, in the order of the model.": Pattern(
            lambda obs: sorted(obs.value) == obs.expected, "blocks"
        ),
        "A unit without blocks is not a unit.": Pattern(lambda obs: [] in obs.actual, "units"),
        "Blocks without parameters need no unit of their own.": Pattern(
            lambda obs: any(not any(obs.case.sizes[b] for b in unit) for unit in obs.actual),
            "units",
        ),
        "A block is larger than the limit, and no error is raised. Which line notices that it "
        "does not fit?": Pattern(lambda obs: not isinstance(obs.actual, ErrorText), "error"),
        "Several blocks are too large. Which one comes first?": Pattern(
            lambda obs: any(f"block {block}" in obs.actual for block in obs.case.large[1:]), "error"
        ),
    },
    unchanged_hint="Which line changes the caller's list?",
    errors={
        "Error: block": "The block is named. Which kind of error does the task ask for?",
        "does not end": "There are 300 blocks here. How many ways are there to cut them into "
        "units?",
        "recursion": "There are 300 blocks here. Does each of them need a call?",
        "out of range": "There may be no blocks, and before the first block there is no unit.",
    },
    on_pass="the fewest possible units for 0 to 300 blocks, and a block that fits nowhere is named",
)
