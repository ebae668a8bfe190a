"""Where to look, for what an attempt did instead of returning: an error, an end."""

import re
from collections.abc import Mapping

from ddp_workbook.diagnostics import advice
from ddp_workbook.errors import RankFailed

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
]
AN_ASSERT = "An assert fails. If it is your own: what are the two values that it compares?"
GROUP_ENDED = "The group was there when your function was called. Which of your lines has ended it?"
NO_GROUP = "There is no process group here, and none is needed. What do the arguments say?"
FOR_OTHER_ERRORS = (
    "What does each name on this line hold when it runs? A print before it shows that, by rank."
)
FOR_DEATHS = {
    -9: "SIGKILL, and not from Python: too little memory for what the cell makes, or a line that "
    "sends the signal.",
    -11: "A crash in compiled code, not in Python. What does the call get that it cannot use?",
}
LEAVES = "Which line ends the process (os._exit, os.abort, os.kill) instead of returning?"


def for_failure(failure: RankFailed, known: Mapping[str, str], group: bool) -> str:
    """Where to look if a rank raised or died; `known` are an exercise's own words for errors.

    `group` is False where the exercise knows of no ranks.
    """
    known = {**known, "process group has not been initialized": GROUP_ENDED if group else NO_GROUP}
    place = failure.positions[0] if failure.positions else None
    own = next((text for words, text in known.items() if words in failure.reason), "")
    if not failure.kind:
        code, call = failure.returncode, place.call if place else ""
        inside = advice.for_death(code, call) if code == -6 else ""
        return own or FOR_DEATHS.get(code) or inside or LEAVES
    ours = next((text for pattern, text in FOR_ERRORS if re.search(pattern, failure.reason)), "")
    known_there = advice.for_error(failure.kind, failure.reason)
    others = AN_ASSERT if failure.kind == "AssertionError" else FOR_OTHER_ERRORS
    return own or ours or known_there or others
