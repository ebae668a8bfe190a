"""Make the groups of a grid: one for each row, and one for each column.

The ranks fill a grid of `rows` times `columns` places row by row. Two rows and three columns are

    0 1 2
    3 4 5

so rank 4 is in the row [3, 4, 5] and in the column [1, 4]. Return two process groups: that of the
calling rank's own row, then that of its own column.

- All ranks call your function with the same numbers. Their product is the world size.
- A row or a column of one rank is a group too.
- All ranks of a row return one and the same group, and so do those of a column. If each had a group
  of its own with the same members, their first collective would hang.
- You may make the groups in any way. With a plain `new_group`, every rank makes every group, also
  those that it is not in, and all ranks in the same order.
"""

import json
import operator
from datetime import timedelta
from itertools import count
from numbers import Integral
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import DistStoreError, ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from ddp_workbook.diagnostics import user_code
from ddp_workbook.exercises import Look, NotYet, OnRanks, Seen, When, edit
from ddp_workbook.exercises.judging import unordered
from ddp_workbook.exercises.judging.values import in_words

MINUTES = 12
HINTS = [
    "How many groups does a grid of two rows and three columns have? Each of the six ranks calls "
    "new_group that many times, and keeps two of the groups.",
    "torch.arange, reshaped to two dimensions, is the grid. The rows of its transpose are the "
    "columns. tolist() turns a row into the list that new_group wants.",
    "Make a list of all row groups and a list of all column groups. What are the indices of rank "
    "r's row and of its column? Divide r by `columns`.",
]
Grid = tuple[int, int]  # rows and columns
GRIDS: dict[int, list[Grid]] = {  # at each world size
    1: [(1, 1)],
    2: [(1, 2), (2, 1)],
    3: [(1, 3), (3, 1)],
    4: [(2, 2), (4, 1)],
    6: [(2, 3), (3, 2), (2, 3)],
}


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


MAKE = dist.distributed_c10d._new_group_with_tag  # new_group and all others call it


class Register:
    """Compares what the ranks ask new_group for: NotYet if these are not the same groups in order.

    Without it, luck decides whether the ranks hang. Groups that only their members make pass.
    """

    number = count()

    def __init__(self, grid: Grid):
        self.called, self.calls = f"row_and_column_groups{grid}", 0
        store = dist.distributed_c10d._get_default_store()
        self.store = dist.PrefixStore(f"groups {next(self.number)}", store)
        dist.distributed_c10d._new_group_with_tag = self.compare_and_make

    @user_code.wait_in
    def close(self) -> None:
        """After the reader's function: this rank makes no further group."""
        dist.distributed_c10d._new_group_with_tag = MAKE
        self.compare(None)

    def compare_and_make(self, ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Replaces PyTorch's function; `ranks` are those of new_group."""
        if not kwargs.get("use_local_synchronization"):
            every = range(dist.get_world_size()) if ranks is None else ranks
            self.compare(sorted(map(operator.index, every)))
        return MAKE(ranks, *args, **kwargs)

    def compare(self, ranks: list[int] | None) -> None:
        """Raise NotYet if another rank makes another group now."""
        self.calls += 1
        keys = [f"{self.calls} {rank}" for rank in range(dist.get_world_size())]
        self.store.set(keys[dist.get_rank()], json.dumps(ranks))
        try:
            self.store.wait(keys, timedelta(seconds=2))
        except DistStoreError:  # a rank does something else: the verdict is about that
            return
        made = [json.loads(self.store.get(key)) for key in keys]
        if any(group != ranks for group in made):
            each = ", ".join(f"{group or 'none'} on rank {rank}" for rank, group in enumerate(made))
            came, required = f"call {self.calls} of new_group: {each}", "the same on all ranks"
            raise NotYet(self.called, came, required, look_at_calls(made))


def look_at_calls(made: list[list[int] | None]) -> str:
    """Where to look if each rank makes the group of these ranks."""
    if None in made:
        return "Some ranks make more groups than others. Is there a call inside an if?"
    if unordered.GONE_THROUGH:
        return "A set of strings has a different order in every process. Which loop uses one?"
    if all(rank in group for rank, group in enumerate(made)):
        return "Each rank makes only the groups that it is in. Who else must make them, and when?"
    return "In which order does each rank make the groups, and what decides that?"


REGISTERS: list[Register] = []  # that of the call under way


def given(grid: Grid) -> Grid:
    """The arguments; from now on, the groups that are made are compared."""
    REGISTERS[:] = [Register(grid)]
    unordered.Unordered.mixed = True
    return grid


def observe(returned: Any, *_: int) -> dict[str, Any]:
    """The members and names of two groups; of anything else, what it is."""
    REGISTERS.pop().close()
    found: Any = None if returned is None else in_words(returned)
    if isinstance(returned, ProcessGroup):
        found = "one group"
    elif isinstance(returned, DeviceMesh | dict):  # a group in it could not leave this process
        found = f"a {type(returned).__name__}"
    elif isinstance(returned, list | tuple):
        found = list(map(members, returned))
    usable = isinstance(found, list) and all(isinstance(one, list) for one in found)
    return {"groups": found, "names": [one.group_name for one in returned] if usable else []}


def members(group: Any) -> list[int] | str:
    """The ranks of a group, or what else this is in words."""
    if isinstance(group, ProcessGroup):
        return ranks_of(group)
    if isinstance(group, tuple) and list(map(type, group[1:])) == [list]:
        return "a group together with a list of groups"
    if isinstance(group, list | tuple) and any(isinstance(one, ProcessGroup) for one in group):
        return f"a {type(group).__name__} of length {len(group)}"
    return in_words(group)


def ranks_of(group: ProcessGroup) -> list[int] | str:
    """Its ranks; or in words, why no collective can use it."""
    try:
        ranks = dist.get_process_group_ranks(group)
    except KeyError:
        return "a group that has been destroyed"
    if not all(isinstance(rank, Integral) for rank in ranks):  # src= would not find a tensor
        return f"a group whose ranks are of type {type(ranks[0]).__name__}"
    return sorted(map(int, ranks))


def there_is(*words: str) -> When:
    """In the place of a group there is something that begins like this."""
    return When(lambda seen: any(one.startswith(words) for one in seen.value if type(one) is str))


def too_large(seen: Seen) -> bool:
    """Whether a group has all ranks, and should not."""
    return any(len(one) == seen.size > len(its) for one, its in pairs(seen))


def alone(seen: Seen) -> bool:
    """Whether the rank is in a group of one, and should not."""
    return any(one == [seen.rank] != its for one, its in pairs(seen))


def pairs(seen: Seen) -> list[tuple[list[int], list[int]]]:
    """Of row and column, what came and what is right."""
    return list(zip(seen.value, seen.right, strict=True))


def as_on_the_first(seen: Seen) -> list[bool]:
    """Of row and column: whether its first rank holds this very group."""
    groups, names = seen.came["groups"], seen.came["names"]
    return [seen.everyone[one[0]].came["names"][n] == names[n] for n, one in enumerate(groups)]


def held(seen: Seen) -> str:
    """Which group each rank of this row or column holds."""
    which = seen.value.index(False)
    ranks = seen.came["groups"][which]
    each = (f"{seen.everyone[rank].came['names'][which]!r} on rank {rank}" for rank in ranks)
    return f"as the group of {ranks}, groups of different names: {', '.join(each)}"


GROUPS = Look(
    of=lambda seen: seen.came["groups"],
    mistakes={
        "Does every path through the function return the groups?": When(
            lambda seen: seen.value is None
        ),
        "The mesh has made the groups. How do you get one from it?": When(
            lambda seen: seen.value == "a DeviceMesh"
        ),
        "A caller who unpacks a dict gets its keys. How does a function return two values?": When(
            lambda seen: seen.value == "a dict"
        ),
        "Return two groups: that of the row, then that of the column.": When(
            lambda seen: not isinstance(seen.value, list) or len(seen.value) != 2
        ),
        "Return only one of these groups. In which row and in which column is this rank?": (
            there_is("a list of length", "a tuple of length")
        ),
        "A slice of a mesh is a mesh. How do you get its group?": there_is("DeviceMesh"),
        "This call returns the rank's own group, and a list of all groups that it made. Which of "
        "the two belongs here?": there_is("a group together with"),
        "Who needs this group after your function has returned?": there_is("a group that has been"),
        "new_group takes ranks as ints. Which method turns a tensor into a list of them?": (
            there_is("a group whose ranks")
        ),
        "None is not a group. To a collective, group=None means the whole world. Which ranks are "
        "in this rank's row, and which in its column?": there_is("None"),
        "new_group returns this on ranks outside the group. In which row and in which column is "
        "this rank?": there_is(str(dist.GroupMember.NON_GROUP_MEMBER)),
        "These look like ranks. What makes a group of them?": there_is("[", "(", "range", "tensor"),
        "This is not a group. Which call makes one, and what does it return?": When(
            lambda seen: any(isinstance(one, str) for one in seen.value)
        ),
        "This group holds all ranks. Which of them are in the row of rank {rank}, and which in its "
        "column?": When(too_large),
        "Rank {rank} is alone in a group. Who else is in its row, and who in its column?": (
            When(alone)
        ),
    },
    otherwise="Draw the grid. Which ranks are in the row of rank {rank}, and which in its column?",
    words=lambda value: (
        " and ".join(one if isinstance(one, str) else f"the group of {one}" for one in value)
        if isinstance(value, list)
        else str(value)
    ),
)
CHECK = OnRanks(
    cases=lambda size: GRIDS[size],
    sizes=(1, 2, 3, 4, 6),
    called="row_and_column_groups{case}",
    given=given,
    observe=observe,
    looks=[
        GROUPS,
        Look(
            of=as_on_the_first,
            right=[True, True],
            otherwise="These groups have the same members, and are not the same group. A "
            "collective of rank {rank} waits in its own for ranks that are in another. Which call "
            "of new_group made the one that each rank returns?",
            came=held,
            required="one group for all its ranks",
        ),
    ],
    mistakes={
        "These are the right groups in the wrong order. Which one comes first?": edit(
            "row_groups[row], column_groups[column]", "column_groups[column], row_groups[row]"
        ),
        "These are the groups of a grid that is filled column by column. Where is rank 1?": edit(
            "reshape(rows, columns)",
            "reshape(columns, rows).T",
            "row, column = divmod(dist.get_rank(), columns)",
            "column, row = divmod(dist.get_rank(), rows)",
        ),
        "These are the groups of a grid with rows and columns swapped. How many ranks does a row "
        "have?": edit(
            "reshape(rows, columns)",
            "reshape(columns, rows)",
            "divmod(dist.get_rank(), columns)",
            "divmod(dist.get_rank(), rows)",
        ),
        "The ranks of a column stand below each other. By how much does the rank grow from one row "
        "to the next?": edit(
            "grid.T.",
            "grid.reshape(columns, rows).T.",
            "column_groups[column]",
            "column_groups[dist.get_rank() % rows]",
        ),
        "The ranks of a column stand below each other. How far apart are they?": edit(
            "grid.T.",
            "grid.reshape(columns, rows).",
            "column_groups[column]",
            "column_groups[dist.get_rank() // rows]",
        ),
    },
    errors={
        "out of range": "How many rows are there, and how many columns? Which number do you use "
        "here?",
        "duplicate entries": "A rank is in a column once. How far apart are a column's ranks?",
        "'list' object cannot be": "new_group takes the ranks of one group. How many groups are in "
        "this list?",
        "invalid for input of size": "Which comes first in the shape of a grid, rows or columns?",
    },
    proves="both groups have the right members and are the same on all of them, on grids of 1 to 6 "
    "ranks",
)
