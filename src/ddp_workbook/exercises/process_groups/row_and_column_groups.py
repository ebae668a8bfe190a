"""Make the groups of a grid: one for each row, and one for each column.

The ranks fill a grid of `rows` times `columns` places row by row. Two rows and three columns are

    0 1 2
    3 4 5

so rank 4 is in the row [3, 4, 5] and in the column [1, 4]. Return two process groups: that of the
calling rank's own row, then that of its own column.

- All ranks call your function with the same numbers. Their product is the world size.
- A row or a column of one rank counts as a group, too.
- The ranks of a row return the group that was made by the same call, and so do those of a column.
  If each returned one from a call of its own, with the same members, their first collective would
  hang.
- You may make the groups in any way, by a mesh as well. With a plain `new_group`, every rank makes
  every group, including those that it is not in, and all ranks in the same order.
"""

import json
import operator
from datetime import timedelta
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import DistStoreError, ProcessGroup

from ddp_workbook.judging import (
    CheckFailed,
    Comparison,
    DistributedCheck,
    Observation,
    Pattern,
    edit,
    set_order,
)
from ddp_workbook.judging.values import in_words
from manyranks.diagnostics import user_code

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


NEW_GROUP = dist.distributed_c10d._new_group_with_tag  # new_group and all others call it


class Register:
    """Compares what the ranks ask new_group for: CheckFailed if the groups or their order differ.

    Without it, luck decides whether the ranks hang. Groups that only their members make pass.
    """

    number = count()

    def __init__(self, grid: Grid):
        self.call_text, self.calls = f"row_and_column_groups{grid}", 0
        store = dist.distributed_c10d._get_default_store()
        self.store = dist.PrefixStore(f"groups {next(self.number)}", store)
        dist.distributed_c10d._new_group_with_tag = self.compare_and_make

    @user_code.mark_finished_wait
    def close(self) -> None:
        """After the reader's function: this rank makes no further group."""
        dist.distributed_c10d._new_group_with_tag = NEW_GROUP
        self.compare(None)

    def compare_and_make(self, ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Replaces PyTorch's function; `ranks` are those of new_group."""
        if not kwargs.get("use_local_synchronization"):
            group_ranks = range(dist.get_world_size()) if ranks is None else ranks
            self.compare(sorted(map(operator.index, group_ranks)))
        return NEW_GROUP(ranks, *args, **kwargs)

    def compare(self, ranks: list[int] | None) -> None:
        """Raise CheckFailed if another rank makes another group now."""
        self.calls += 1
        keys = [f"{self.calls} {rank}" for rank in range(dist.get_world_size())]
        self.store.set(keys[dist.get_rank()], json.dumps(ranks))
        try:
            self.store.wait(keys, timedelta(seconds=2))
        except DistStoreError:  # a rank does something else: the verdict is about that
            return
        groups = [json.loads(self.store.get(key)) for key in keys]
        if any(group != ranks for group in groups):
            texts = ", ".join(
                f"{group or 'none'} on rank {rank}" for rank, group in enumerate(groups)
            )
            actual, required = f"call {self.calls} of new_group: {texts}", "the same on all ranks"
            raise CheckFailed(self.call_text, actual, required, hint_for(groups))


def hint_for(groups: list[list[int] | None]) -> str:
    """Where to look if each rank makes the group of these ranks."""
    if None in groups:
        return "Some ranks make more groups than others. Is there a call inside an if?"
    return (
        "Which groups must every rank make, including those that it is not in, and what decides in "
        "which order it makes them?"
    )


REGISTERS: list[Register] = []  # that of the call under way


def make_args(grid: Grid) -> Grid:
    """The arguments; from now on, the groups that are made are compared."""
    REGISTERS[:] = [Register(grid)]
    set_order.RankOrderedSet.reverse_on_odd_ranks = True
    return grid


def observe(returned: Any, *_: int) -> dict[str, Any]:
    """The members and names of the groups in a list or tuple; of anything else, what it is."""
    REGISTERS.pop().close()
    if not isinstance(returned, list | tuple):
        return {"groups": None if returned is None else in_words(returned), "names": []}
    groups = list(map(members, returned))
    usable = all(isinstance(group, list) for group in groups)
    return {"groups": groups, "names": [group.group_name for group in returned] if usable else []}


def members(group: Any) -> list[int] | str:
    """The ranks of a group; in words, what else this is, or why no collective can use it."""
    if not isinstance(group, ProcessGroup):
        return in_words(group)
    try:
        return sorted(map(int, dist.get_process_group_ranks(group)))
    except KeyError:
        return "a group that has been destroyed"


def equals_first_rank(obs: Observation) -> list[bool]:
    """Of row and column: whether its first rank holds this very group."""
    groups, names = obs.actual["groups"], obs.actual["names"]
    return [
        obs.all_ranks[group[0]].actual["names"][n] == names[n] for n, group in enumerate(groups)
    ]


CHECK = DistributedCheck(
    cases=lambda size: GRIDS[size],
    sizes=(1, 2, 3, 4, 6),
    call_text="row_and_column_groups{values}",
    make_args=make_args,
    observe=observe,
    compare={
        "groups": Comparison(
            "Draw the grid. Which ranks are in the row of rank {rank}, and which in its column?",
            required="groups of the ranks {expected} {there}",
        ),
        "one group": Comparison(
            "These groups have the same members, and are not the same group. A "
            "collective of rank {rank} waits in its own for ranks that are in another. Which call "
            "of new_group made the one that each rank returns?",
            [True, True],
            select=equals_first_rank,
            actual="on rank {rank}, another group than on the first rank of its row or column",
            required="one group for all its ranks",
        ),
    },
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
        "The ranks of a column stand below each other. How far apart are they?": [
            edit(
                "grid.T.",
                f"grid.reshape(columns, rows){transposed}.",
                "column_groups[column]",
                f"column_groups[dist.get_rank() {divided} rows]",
            )
            for transposed, divided in ((".T", "%"), ("", "//"))
        ],
        "new_group returns this on ranks outside the group. In which row and in which "
        "column is this rank?": Pattern(
            lambda obs: in_words(dist.GroupMember.NON_GROUP_MEMBER) in (obs.value or ()), "groups"
        ),
        "Return two groups: that of the row, then that of the column. A mesh, or a list of "
        "groups, is not a group: how do you get this rank's own from it?": Pattern(
            lambda obs: [*map(type, obs.value or ())] != [list, list], "groups"
        ),
    },
    errors={
        "'list' object cannot be": "new_group takes the ranks of one group. How many groups are in "
        "this list?",
    },
    on_pass="both groups have the right members and are the same on all of them, on grids of 1 to "
    "6 ranks",
)
