"""Make the groups of a grid: of each row, and of each column.

The ranks stand on a grid of `rows` times `columns` places, which they fill row by row. Two rows and
three columns are

    0 1 2
    3 4 5

so rank 4 is in the row [3, 4, 5] and in the column [1, 4]. Your function is called on all ranks,
with the same numbers, of which the product is the world size. It returns two process groups: first
that of the rank's own row, then that of its own column. What makes them is up to you. Where it is
`new_group`, every rank makes the same groups in the same order, also those that it is not in.
"""

import json
import operator
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from ddp_workbook.exercises import Attempt, NotYet, attempt_on_ranks, in_words

HINTS = [
    "How many groups are there altogether, on a grid of two rows and three columns? Each of the "
    "six ranks calls new_group as often as that, and keeps two of what it gets.",
    "The numbers 0, 1, 2, ... as a tensor with two dimensions are the grid, and its transpose has "
    "the columns as rows. tolist() gives new_group what it wants.",
    "Make one list of the groups of all rows, another one of those of all columns. Which number "
    "has the row of rank r, and which its column? One comes from r // columns, one from the rest.",
]
FOR_ERRORS = {
    "out of range": "How many rows are there, and how many columns? Which of them is used here?",
    "duplicate entries": "A rank is in a column once. How far apart are a column's ranks?",
    "'list' object cannot be": "new_group takes the ranks of one group. How many are in this list?",
    "invalid for input of size": "Which comes first in the shape of a grid, rows or columns?",
}
SIZES = (1, 2, 3, 4, 6)
# Rows and columns at each world size.
GRIDS = {1: [(1, 1)], 2: [(1, 2), (2, 1)], 3: [(1, 3)], 4: [(4, 1), (2, 2)], 6: [(2, 3), (3, 2)]}
PATIENCE = 2  # seconds, with ranks that do not come to new_group
LINES = ("row", "column")


def row_and_column_groups(rows: int, columns: int) -> tuple[ProcessGroup, ProcessGroup]:
    """The groups of this rank's row and of its column, on a grid that is filled row by row."""
    ### BEGIN SOLUTION
    grid = torch.arange(rows * columns).reshape(rows, columns)
    # every rank makes all of them: first those of the rows, then those of the columns
    row_groups = [dist.new_group(ranks) for ranks in grid.tolist()]
    column_groups = [dist.new_group(ranks) for ranks in grid.T.tolist()]
    row, column = divmod(dist.get_rank(), columns)
    return row_groups[row], column_groups[column]
    ### END SOLUTION


class Register:
    """Compares what the ranks ask new_group for: NotYet if these are not the same groups in order.

    Where they would hang is a matter of luck. Groups that their members make alone pass.
    """

    def __init__(self, called: str):
        self.called, self.count = called, 0
        self.make = dist.distributed_c10d._new_group_with_tag  # new_group and all others call it
        self.store = dist.PrefixStore(called, dist.distributed_c10d._get_default_store())

    def __enter__(self) -> None:
        dist.distributed_c10d._new_group_with_tag = self.compare_and_make

    def __exit__(self, kind: Any, *_: Any) -> None:
        dist.distributed_c10d._new_group_with_tag = self.make
        if kind is None:
            self.compare_ranks(None)  # no further group

    def compare_and_make(self, ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        """In place of the function; `ranks` as new_group takes them."""
        if not kwargs.get("use_local_synchronization"):
            every = range(dist.get_world_size()) if ranks is None else ranks
            self.compare_ranks(sorted(map(operator.index, every)))
        return self.make(ranks, *args, **kwargs)

    def compare_ranks(self, ranks: list[int] | None) -> None:
        """Raise NotYet if another rank makes another group now."""
        self.count += 1
        keys = [f"{self.count} {rank}" for rank in range(dist.get_world_size())]
        self.store.set(keys[dist.get_rank()], json.dumps(ranks))
        end = time.monotonic() + PATIENCE
        while not self.store.check(keys):
            if time.monotonic() > end:  # one does something else: the verdict is about that
                return
            time.sleep(0.002)
        made = [json.loads(self.store.get(key)) for key in keys]
        if any(group != ranks for group in made):
            each = ", ".join(f"{group or 'none'} on rank {rank}" for rank, group in enumerate(made))
            came, required = f"call {self.count} of new_group: {each}", "the same on all ranks"
            raise NotYet(self.called, came, required, look_at_calls(made))


def look_at_calls(made: list[list[int] | None]) -> str:
    """Where to look if each rank makes the group of these ranks."""
    if None in made:
        return "Some ranks make more groups than others. Is there a call under an if?"
    if all(rank in group for rank, group in enumerate(made)):
        return "Each rank comes to a group that it is in. Who else must come to it, and when?"
    return "In which order does a rank make the groups, and what decides that?"


def members_and_sums(row_and_column_groups: Callable, grids: list[tuple[int, int]]) -> None:
    """In a rank: make the groups of each grid, compare the members on all ranks, and use them."""
    for rows, columns in grids:
        called = f"row_and_column_groups({rows}, {columns})"
        with Register(called):
            returned = row_and_column_groups(rows, columns)
        found: list = [None] * rows * columns
        dist.all_gather_object(found, members_of(returned))
        for rank, members in enumerate(found):
            if members != (right := right_members(rank, rows, columns)):
                came, look = members if isinstance(members, tuple) else ("", "")
                came = came or f"the groups of {members[0]} and of {members[1]}"
                look = look or look_at_members(members, right, rank, rows, columns)
                required = f"the groups of the row {right[0]} and of the column {right[1]}"
                raise NotYet(called, f"{came}, on rank {rank}", required, look)
        for group, ranks in zip(returned, found[dist.get_rank()], strict=True):
            number = torch.tensor(10 ** dist.get_rank())
            dist.all_reduce(number, group=group)
            if number != sum(10**rank for rank in ranks):
                came, look = f"a wrong sum over the group of {ranks}", "Is it the same on all?"
                raise NotYet(called, came, "the sum over its members", look)


def right_members(rank: int, rows: int, columns: int) -> list[list[int]]:
    """The rank's row, and its column."""
    first = rank // columns * columns
    return [[*range(first, first + columns)], [*range(rank % columns, rows * columns, columns)]]


def members_of(returned: Any) -> list[list[int]] | tuple[str, str]:
    """The members of both groups; or, if there are no two groups, what there is, and a thought."""
    if returned is None:
        return "None", "Does the function return the groups, on every path?"
    if isinstance(returned, DeviceMesh):
        return "a DeviceMesh", "The mesh has made the groups. How does it hand one out?"
    if isinstance(returned, ProcessGroup) or not isinstance(returned, list | tuple):
        words = "one group" if isinstance(returned, ProcessGroup) else in_words(returned)
        return words, "Two groups are asked for: that of the row, then that of the column."
    for which, group in zip(LINES, returned, strict=False):
        if not isinstance(group, ProcessGroup):
            return another_kind(group, which)
    if len(returned) != 2:
        return f"{len(returned)} values", "Which two groups are asked for?"
    return [sorted(dist.get_process_group_ranks(group)) for group in returned]


def another_kind(value: Any, which: str) -> tuple[str, str]:
    """What stands in the place of a group, and where to look."""
    items, words = list(value) if isinstance(value, list | tuple) else [], in_words(value)
    look = "This is no group. What makes one, and what does that return?"
    if value is None or (type(value) is int and value == dist.GroupMember.NON_GROUP_MEMBER):
        look = f"new_group gives this to ranks outside the group. In which {which} is this rank?"
    elif any(isinstance(one, ProcessGroup) for one in items):
        words = f"a {type(value).__name__} of length {len(items)}"
        look = f"Only one of these groups is asked for: in which {which} is this rank?"
    elif items:
        look = "Are these ranks? What makes a group of them?"
    return f"for the {which} {words}", look


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Look at the members of both groups on every rank, then use them, on each grid."""
    for ranks in sorted(sizes, reverse=True):  # larger grids tell more
        attempt_on_ranks(attempt, members_and_sums, each=[GRIDS[ranks]] * ranks)
    return "both groups have the right members on every rank, and add up, on grids of 1 to 6 ranks"


def look_at_members(
    members: list[list[int]], right: list[list[int]], rank: int, rows: int, columns: int
) -> str:
    """The thought behind groups of other ranks."""
    turned = right_members(rank, columns, rows)
    thoughts = {
        "with their places changed" if rows != columns else "in the other order": right[::-1],
        f"of a grid with rows of {rows}": turned,
        "of a grid that is filled column by column": turned[::-1],
    }
    if fits := [thought for thought, groups in thoughts.items() if groups == members]:
        return f"These are the groups {', or '.join(fits)}. Where is rank 1, and what comes first?"
    first = 0 if members[0] != right[0] else 1
    which, own = LINES[first], members[first]
    if len(own) == rows * columns:
        return f"All ranks are in this group. Which of them are in rank {rank}'s {which}?"
    if own == [rank]:
        return f"Rank {rank} is alone in this group. Who else is in its {which}?"
    if which == "column" and own == list(range(own[0], own[0] + rows)):
        return "The ranks of a column are below each other. How far apart are their numbers?"
    return f"Draw the grid. Which ranks are in the {which} of rank {rank}?"
