"""Where to look, for what an attempt did instead of returning: a hang, an error, an end."""

import ast
import re
from collections.abc import Sequence

import torch.distributed as dist

from ddp_workbook.diagnostics import advice
from ddp_workbook.diagnostics.positions import TWO_SIDED, Position
from ddp_workbook.errors import RankFailed

A_MEETING = "A collective is a meeting: every rank of the group must come."
PAIRS = "Write down who sends to whom, in which order, for each rank. Does each recv have its send?"
# What a rank can wait in for another one; the last two are autograd's and DDP's.
COMMUNICATES = {
    name
    for name in dist.distributed_c10d.__all__
    if name.islower() and not name.startswith(("get_", "is_", "destroy_"))
} | {"backward", "distributed"}
LOOP = "What ends the loop around this line, and does it ever happen?"
NO_LOOP = "What does this line wait for, or how long does it compute? No rank waits for another."
WHY_THERE = "What does it wait for there, or how long does it compute?"
NO_LINE = "What goes on after your function, or beside it: a thread, a process, a signal?"
BEHIND_IT = {"has returned", "has failed", "has died"}

# (pattern in "Type: message", where to look). The first that fits is given; then those of `advice`.
FOR_ERRORS = [
    (
        r"^NotImplementedError",
        "The line of the stub that raises it is still there: put your lines in its place.",
    ),
    (
        r"^NameError",
        "Is the name spelt right? Your cell knows only what it imports and defines itself.",
    ),
    (r"^(ModuleNotFound|Import)Error", "Is the name spelt right, and is it installed?"),
    (r"^RecursionError", "The function calls itself. What ends that, and does it ever happen?"),
    (
        r"^MemoryError|can't allocate memory|out of memory",
        "How large is what this line makes? Every rank makes one of its own.",
    ),
    (
        r"Pair is not connected|should not be the same as the rank",
        "Who is on the other side of this call? A rank cannot send to itself or receive from "
        "itself, and at 1 rank there is nobody else.",
    ),
    (r"list index out of range\n?$", "How long is the list, or how many ranks are there?"),
    (
        r"process group twice",
        "The group is there when your function is called. Nobody has to make it.",
    ),
    (r"^AssertionError", "The assert is your own: what are the two values that it compares?"),
]
FOR_OTHER_ERRORS = (
    "What does each name on this line hold when it runs? A print before it shows that, by rank."
)
FOR_DEATHS = {
    -9: "SIGKILL, and not from Python: too little memory for what the cell makes, or a line that "
    "sends the signal.",
    -11: "A crash in compiled code, not in Python. What does the call get that it cannot use?",
}
LEAVES = "Which line ends the process (os._exit, os.abort, os.kill) instead of returning?"


def communicates(place: Position) -> bool:
    """True if the rank stands in a call that waits for other ranks."""
    return place.call in COMMUNICATES or ".wait(" in place.place


def for_hang(places: Sequence[Position], missed: Sequence[str], path: str) -> str:
    """Where to look if ranks did not finish; `path` is the file of the attempt."""
    waits = any(map(communicates, places))
    behind = [p for p in places if p.file and not communicates(p)]
    if not waits and not missed:
        return _for_lines(behind, path)
    if behind:
        who = "Rank " + ", rank ".join(str(place.rank) for place in behind)
        return f"{who} did not come to it. {_for_lines(behind, path).replace(NO_LOOP, WHY_THERE)}"
    calls = {place.call for place in places if place.call}
    if calls and calls <= set(TWO_SIDED):
        return PAIRS
    if not calls and not missed:  # in the wait of a Work: of a collective the trail would know
        return PAIRS
    if any("differs between the ranks" in words for words in missed) and len(calls) == 1:
        return "The ranks meet in the same call with other shapes or dtypes. Which are they?"
    if not missed and len(calls) == 1 and not any(p.doing in BEHIND_IT for p in places):
        return "All are in the same call. Do they agree on its arguments, such as src and group?"
    return advice.for_hang(list(places), bool(missed)) or A_MEETING


def _for_lines(places: list[Position], path: str) -> str:
    if not places:
        return NO_LINE
    return LOOP if any(in_loop(p.line, path) for p in places if p.file == path) else NO_LOOP


def in_loop(line: int, path: str) -> bool:
    """True if this line of the file is in a `for` or `while`, or is its first line."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While))
    return any(loop.lineno <= line <= loop.end_lineno for loop in loops)


def for_failure(failure: RankFailed, known: dict[str, str]) -> str:
    """Where to look if a rank raised or died; `known` are an exercise's own words for errors."""
    place = failure.positions[0] if failure.positions else None
    own = next((text for words, text in known.items() if words in failure.reason), "")
    if not failure.kind:
        code, call = failure.returncode, place.call if place else ""
        inside = advice.for_death(code, call) if code == -6 else ""
        return own or FOR_DEATHS.get(code) or inside or LEAVES
    ours = next((text for pattern, text in FOR_ERRORS if re.search(pattern, failure.reason)), "")
    return own or ours or advice.for_error(failure.kind, failure.reason) or FOR_OTHER_ERRORS
