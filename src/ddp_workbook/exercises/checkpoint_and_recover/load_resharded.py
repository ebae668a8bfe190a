"""Load this rank's rows of a tensor that another number of ranks has saved.

Each of the ranks that saved has written its rows into a file of its own. The rows lie in rank
order: file 0 begins with row 0, and each file continues where the one before it ends. Your function
is called on every rank with

- `full`, a tensor on the device `meta`: the shape and dtype of the whole tensor, and no memory,
- `sizes`, a list: how many rows each file has. They differ, and may be 0.
- `read`, a function: `read(k)` returns all rows of file k as a new tensor.

Return this rank's rows. Rows are dealt out as `torch.chunk` and `fully_shard` do it: each rank has
the same number of rows, rounded up. So the last ranks may have fewer, or none at all.

- Read only files that have rows of this rank, and each of them once.
- Beside the rows that you return, never have more than two files in memory. 16 KiB may come on top,
  for indices and the like.
- Every rank sees all files. Nothing needs to be sent.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.judging import Comparison, DistributedCheck, Observation, Pattern, at_most, edit
from ddp_workbook.judging.comm_comparisons import calls_only
from ddp_workbook.judging.equality import values_equal
from ddp_workbook.judging.memory import PeakMemoryMode
from ddp_workbook.judging.shards import filled_memory

MINUTES = 13
HINTS = [
    "Which rows of the whole tensor are this rank's, from which one to which one? Which rows has "
    "file k? Both are intervals of the same numbering.",
    "Go through the files and keep in mind at which row the next one begins. The rows that an "
    "interval shares with another begin at the larger of the two beginnings.",
    "Make the result first, with torch.empty. Then copy what a file has for you to its place, and "
    "keep neither the file nor a part of it.",
]
SLACK_BYTES = 16 * 1024
ON_META = "a tensor on the device meta"


def load_resharded(full: Tensor, sizes: list[int], read: Callable[[int], Tensor]) -> Tensor:
    """This rank's rows of `full` [n, ...], on the CPU; file k has sizes[k] rows: read(k)."""
    ### BEGIN SOLUTION
    rows = -(-len(full) // dist.get_world_size())  # rounded up
    first = min(dist.get_rank() * rows, len(full))
    end = min(first + rows, len(full))
    mine = torch.empty(end - first, *full.shape[1:], dtype=full.dtype)
    begin = 0
    for file, size in enumerate(sizes):
        low, high = max(first, begin), min(end, begin + size)
        if low < high:
            mine[low - first : high - first] = read(file)[low - begin : high - begin]
        begin += size
    return mine
    ### END SOLUTION


class Checkpoint(NamedTuple):
    """The rows of each file, the other dimensions, the dtype; and how many ranks load it."""

    sizes: list[int]
    rest: tuple[int, ...]
    dtype: torch.dtype
    ranks: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole tensor."""
        return (sum(self.sizes), *self.rest)

    def rows(self, rank: int) -> tuple[int, int]:
        """The first row of a rank, and the one after its last."""
        total = sum(self.sizes)
        share = -(-total // self.ranks)
        return min(rank * share, total), min((rank + 1) * share, total)

    def files(self, rank: int) -> list[int]:
        """Those that have rows of a rank."""
        first, end = self.rows(rank)
        owner = [file for file, size in enumerate(self.sizes) for _ in range(size)]
        return sorted({*owner[first:end]})

    def max_bytes(self, rank: int) -> int:
        """Bytes that a rank may have at a time."""
        first, end = self.rows(rank)
        row = torch.Size(self.rest).numel() * self.dtype.itemsize
        return (end - first + 2 * max(self.sizes)) * row + SLACK_BYTES


CASES = [
    Checkpoint([3, 3, 3, 1], (2,), torch.float32),
    Checkpoint([5, 5], (2, 2), torch.float64),
    Checkpoint([2, 0, 5, 1, 0], (), torch.int64),
    Checkpoint([1, 0, 1], (2,), torch.bfloat16),  # of 3 or 4 ranks, some have no row
    Checkpoint([48] * 12, (200,), torch.float32),
    Checkpoint([7, 90, 30, 43], (60,), torch.float32),
]


def whole(case: Checkpoint) -> Tensor:
    """The tensor, in which no number occurs twice; integers are too large for a float64."""
    offset = 0.25 if case.dtype.is_floating_point else 2**53
    places = torch.arange(torch.Size(case.shape).numel(), dtype=torch.float64)
    numbers = places + offset if case.dtype.is_floating_point else places.long() + offset
    return numbers.reshape(case.shape).to(case.dtype)


class Files:
    """The argument `read`; it remembers what was read, and how much memory the call took."""

    def __init__(self, case: Checkpoint) -> None:
        self.shards, self.calls, self.peak_bytes = whole(case).split(case.sizes), list[int](), 0

    def __call__(self, file: int) -> Tensor:
        """All rows of one file, in memory of their own."""
        if file not in range(len(self.shards)):
            raise IndexError(f"there is no file {file}: the last one is {len(self.shards) - 1}")
        self.calls.append(int(file))
        return self.shards[file].clone()


def make_args(case: Checkpoint) -> tuple[Tensor, list[int], Files]:
    """The arguments of a call."""
    return torch.empty(case.shape, dtype=case.dtype, device="meta"), [*case.sizes], Files(case)


def call_and_measure(function: Callable, full: Tensor, sizes: list[int], read: Files) -> Any:
    """Call the reader's function, and note how much memory it took."""
    with filled_memory(), PeakMemoryMode(0) as memory:
        returned = function(full, sizes, read)
    read.peak_bytes = memory.peak_bytes
    return returned


def observe(returned: Any, full: Tensor, sizes: list[int], read: Files) -> dict[str, Any]:
    """What came back, which files were read, and the most bytes at a time."""
    if isinstance(returned, Tensor) and returned.is_meta:
        returned = ON_META
    return {
        "rows": returned,
        "files that were read": sorted(read.calls),
        "bytes in memory": read.peak_bytes,
    }


def of_another_rank(obs: Observation) -> bool:
    """Whether these are the rows that another rank must return."""
    return any(
        values_equal(obs.value, rank_obs.expected)
        for rank_obs in obs.all_ranks
        if rank_obs.rank != obs.rank
    )


def more_rows(obs: Observation) -> int:
    """How many rows too many have come; negative if some are missing."""
    tensor = isinstance(obs.value, Tensor) and obs.value.dim()
    return len(obs.value) - len(obs.expected) if tensor else 0


ROUNDED_UP = "-(-len(full) // dist.get_world_size())"
NEXT = "        begin += size"
MINE = "mine = torch.empty(end - first, *full.shape[1:], dtype=full.dtype)"
CHECK = DistributedCheck(
    cases=CASES,
    call_text="load_resharded(full, sizes, read), ranks: {case.ranks}, where sizes was "
    "{case.sizes}, and full {case.dtype} of shape {case.shape}",
    make_args=make_args,
    caller=call_and_measure,
    observe=observe,
    compare={
        "rows": Comparison(
            "Follow this rank's first row: which file has it, and as its which row? Then follow "
            "its last one.",
            lambda case, rank: whole(case)[slice(*case.rows(rank))],
        ),
        "operations": calls_only(
            required="no communication",
            hint="Every rank can read every file. What is left to send?",
        ),
        "files that were read": Comparison(
            "Each read counts when there are thousands of files. Which of these have a row of this "
            "rank?",
            lambda case, rank: case.files(rank),
            required="{expected}, each once",
        ),
        "bytes in memory": at_most(
            "Which tensors are alive when the last file is read, or when parts are joined? A slice "
            "of a file keeps the whole file in memory.",
            lambda case, rank: case.max_bytes(rank),
            required="{expected} at most: its rows, two files, and 16 KiB",
        ),
    },
    mistakes={
        "When the rows do not divide, some are nobody's. How many has each rank, rounded up?": edit(
            ROUNDED_UP, "len(full) // dist.get_world_size()"
        ),
        "A file that you pass over has rows as well. At which row does the next one begin?": edit(
            NEXT, "    " + NEXT
        ),
        "Where does a file begin in the whole tensor, if the files differ in length?": edit(
            "    for file, size in enumerate(sizes):\n",
            "    for file, size in enumerate(sizes):\n        begin = file * sizes[0]\n",
        ),
        "The rows that you need may begin in the middle of a file. Which of its rows are they?": (
            edit("[low - begin : high - begin]", "[: high - low]")
        ),
        "All that you have read stands at the beginning. Where in the result does each part "
        "belong?": edit("mine[low - first : high - first]", "mine[: high - low]"),
        "The dtype is another one. Which one has the whole tensor, and does every number survive "
        "in yours?": edit(MINE, MINE.replace(", dtype=full.dtype", "")),
        "This rank owns no rows. Which dtype has its result, and which shape but for the rows?": (
            Pattern(lambda obs: not len(obs.expected) and not obs.value.numel(), "rows")
        ),
        "These are another rank's rows. Which rows are rank {rank}'s, and do all ranks "
        "read the same ones?": Pattern(of_another_rank, "rows"),
        "Such a tensor has a shape, and no memory. Which tensor gets the rows?": Pattern(
            lambda obs: isinstance(obs.value, str) and obs.value == ON_META, "rows"
        ),
        "There are more rows than this rank owns. Which of them are its own?": Pattern(
            lambda obs: more_rows(obs) > 0, "rows"
        ),
        "There are fewer rows than this rank owns. How does torch.chunk deal out rows "
        "that do not divide?": Pattern(lambda obs: more_rows(obs) < 0, "rows"),
        "A file was read more than once. What could you take from it the first time?": Pattern(
            lambda obs: len({*obs.value}) < len(obs.value), "files that were read"
        ),
    },
    errors={
        "negative dimension": "The last ranks may have no rows at all. Where do their rows begin "
        "and end, in your formula?",
        "there is no file": "The files are numbered from 0 to len(sizes) - 1. Which number is out "
        "of that range, and is it meant to be a rank's or a file's?",
        "hangs": "Every rank can read every file. What is sent here, and does every rank join?",
        "expected a non-empty list": "A rank may have no rows. Which shape and dtype has its "
        "result then?",
    },
    on_pass="the rows of 2 to 12 files at 1 to 4 ranks, uneven and empty files and ranks included; "
    "only what is needed was read, and never more than two files were in memory beside the result",
)
