"""Name the collective: what four ranks held before it, and what it has given to each.

A dash means that the call gives this rank nothing: what is in its tensors afterwards is not
promised by anybody. Of a call with a root (`src` or `dst`), rank 0 is the root.

| | rank 0 | rank 1 | rank 2 | rank 3 |
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

Your function returns a dict: for each letter one of broadcast, scatter, reduce, gather, all_reduce,
all_gather, reduce_scatter and all_to_all. A call that combines numbers adds them up, unless another
operation stands behind its name, as in "reduce PRODUCT". If several calls give the same, each is
right: ranks make the call that you name, and then fewer ranks do, with fewer numbers.
"""

import re
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ddp_workbook.exercises import Attempt, NotYet, attempt_on_ranks, in_words

HINTS = [
    "Three questions tell them apart. Does one rank get something, or do all? Is it a piece, or "
    "everything? Is there a number that nobody had before?",
    "Follow the 10 of rank 1 in A, C, D and F: it has become part of a sum, has gone to a place of "
    "its own, or has not moved at all.",
    "In B nothing but the count of the numbers has changed. In E and G look for the largest number "
    "of each column. G's numbers come from two ranks, so nobody can have handed them out alone.",
]
SIZES = (4, 3, 2, 1)  # the table's own first
OPS = {op: getattr(dist.ReduceOp, op) for op in ("SUM", "AVG", "PRODUCT", "MIN", "MAX")}
COMBINES = {"reduce", "all_reduce", "reduce_scatter"}
MOVES = {"broadcast", "scatter", "gather", "all_gather", "all_to_all"}
NO_NAME = ("torch", "distributed", "dist", "op", "ReduceOp")  # words that may stand beside it
CALLED = "name_the_collective()"
Held = list[list[float] | None]  # the numbers of each rank


def name_the_collective() -> dict[str, str]:
    """For each letter of the table the name of the call, with its operation if that is not SUM."""
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


def cells(row: str) -> Held:
    """The numbers of each rank; None for a dash."""
    return [None if one == "-" else [float(n) for n in one.split()] for one in row.split(" | ")]


ROWS = re.findall(r"\*\*(\w)\*\* before \| (.*) \|\n\| after \| (.*) \|", __doc__)
TABLE = {letter: (cells(before), cells(after)) for letter, before, after in ROWS}


def held_by(letter: str, ranks: int) -> list[list[float]]:
    """What the first ranks hold before; of longer rows as many numbers as there are ranks."""
    return [row[:ranks] for row in TABLE[letter][0][:ranks]]


def played(attempt: Callable, rank: int) -> dict[str, tuple]:
    """In a rank: by letter, the name, and what it and the right one give to this rank."""
    names = [names_in(attempt()) if rank == 0 else None]
    dist.broadcast_object_list(names, src=0)  # so that all ranks make the same calls
    right = names_in(name_the_collective())
    return {one: (name, play(name, one), play(right[one], one)) for one, name in names[0].items()}


def names_in(answer: Any) -> dict[str, str]:
    """The names that are there, by letter; raises NotYet for other things than names."""
    if not isinstance(answer, dict) or not set(answer) <= set(TABLE):
        look = "The dict stood in the cell at first. Are its letters and the return still there?"
        raise NotYet(CALLED, in_words(answer), "a dict of names, with the letters A to H", look)
    return {one: with_operation(one, answer[one]) for one in TABLE if answer.get(one)}


def with_operation(letter: str, name: Any) -> str:
    """ "all_reduce SUM" for "dist.all_reduce"; raises NotYet for what is no name."""
    came, text = f"{in_words(name)} for {letter}", getattr(name, "__name__", str(name))
    words = [word for word in re.findall(r"\w+", text.replace("-", "_")) if word not in NO_NAME]
    call = re.sub("(_into_tensor|_tensor|_single)$", "", words[0].lower()) if words else ""
    ops = [word.upper() for word in words[1:]]
    if call not in MOVES | COMBINES or len(ops) > 1 or not set(ops) <= set(OPS):
        required = f"one of the eight names; behind it one of {', '.join(OPS)}, or nothing"
        raise NotYet(CALLED, came, required, "Is it one of the eight, and spelt like that?")
    if ops and call in MOVES:
        look = f"Does {call} combine numbers, or move them?"
        raise NotYet(CALLED, came, "an operation only where numbers are combined", look)
    return " ".join([call, *(ops or ["SUM"])])


def play(name: str, letter: str) -> list[float] | None:
    """In a rank: make the call with the numbers of the table; what it gives to this rank."""
    rank, ranks, (call, op) = dist.get_rank(), dist.get_world_size(), name.split()
    mine = torch.tensor(held_by(letter, ranks)[rank], dtype=torch.float64)
    if call in ("scatter", "reduce_scatter", "all_to_all") and len(mine) % ranks:
        came, look = f"{call} cannot cut this into {ranks} pieces", "Is anything cut here?"
        raise NotYet(in_call(letter, name, ranks), came, "a call that can be made", look)
    pieces, op, root = list(mine.chunk(ranks)), OPS[op], rank == 0
    own, arrived = torch.empty_like(pieces[0]), [torch.empty_like(one) for one in pieces]
    everyone = [torch.empty_like(mine) for _ in range(ranks)]
    filled, arguments = {
        "broadcast": (mine, (mine, 0)),
        "scatter": (own, (own, pieces if root else None, 0)),
        "reduce": (mine, (mine, 0, op)),
        "gather": (everyone, (mine, everyone if root else None, 0)),
        "all_reduce": (mine, (mine, op)),
        "all_gather": (everyone, (everyone, mine)),
        "reduce_scatter": (own, (own, pieces, op)),
        "all_to_all": (arrived, (arrived, pieces)),
    }[call]
    getattr(dist, call)(*arguments)
    given = torch.cat(filled) if isinstance(filled, list) else filled
    return given.tolist() if root or call not in ("reduce", "gather") else None


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Compare what the named calls give with what the table says, at each world size."""
    for ranks in sizes:
        answers, _ = attempt_on_ranks(attempt, played, each=range(ranks))
        for letter in answers[0]:
            names, came, right = map(list, zip(*(one[letter] for one in answers), strict=True))
            right = TABLE[letter][1] if ranks == SIZES[0] else right
            if came != right:
                called, look = in_call(letter, names[0], ranks), look_at(letter, came, right)
                raise NotYet(called, in_rows(came), in_rows(right), look)
        if missing := [one for one in TABLE if one not in answers[0]]:
            came = f"right: {', '.join(answers[0]) or 'none'}; no name for {', '.join(missing)}"
            raise NotYet(CALLED, came, "a name for each of A to H", "Where have the numbers gone?")
    return "8 calls give what the table says on 4 ranks, and what fewer ranks need at 1 to 3"


def in_call(letter: str, name: str, ranks: int) -> str:
    """What was called, by how many ranks."""
    held = in_rows(held_by(letter, ranks))
    return f"{letter} of the table, with {name.removesuffix(' SUM')}, on ranks with {held}"


def in_rows(held: list) -> str:
    """ "1 2 on rank 0, - on rank 1", or "1 2 on every rank"."""
    rows = ["-" if row is None else " ".join(f"{n:g}" for n in row) for row in held]
    if len(rows) > 1 and len(set(rows)) == 1:
        return f"{rows[0]} on every rank"
    return ", ".join(f"{row} on rank {rank}" for rank, row in enumerate(rows))


def look_at(letter: str, came: Held, right: Held) -> str:
    """The thought behind another result."""
    for rank, (one, other) in enumerate(zip(came, right, strict=True)):
        if (one is None) != (other is None):
            gets = "nothing" if one is None else "something"
            return f"Rank {rank} gets {gets} from this call. Who is to get something?"
        if one is not None and len(one) != len(other):
            return f"Count the numbers of rank {rank}. Whose are they, all or a piece of them?"
    held = {number for row in held_by(letter, len(came)) for number in row}
    new, needed = ([n for r in rows for n in r or () if n not in held] for rows in (came, right))
    if new and needed:
        return "The numbers are new ones in both. How are they combined?"
    if new:
        return f"{new[0]:g} was on no rank before. Are the required numbers new ones, too?"
    if needed:
        return f"{needed[0]:g} was on no rank before. How does it come about?"
    return "Choose a rank that has other numbers now. On which ranks were those that it is to have?"
