"""Where to look if an attempt raised an error or ended its process instead of returning."""

import re
from collections.abc import Mapping

from manyranks.diagnostics import advice
from manyranks.errors import RankFailed

# (pattern in "Type: message", where to look). The first match is given, before those of `advice`.
ADVICE_BY_ERROR = [
    (
        r"^NotImplementedError",
        "The line of the stub that raises it is still there: replace it by your lines.",
    ),
    (
        r"^NameError",
        "Is the name spelled right? Your cell knows only what it imports and defines itself.",
    ),
    (r"^(ModuleNotFound|Import)Error", "Is the name spelled right, and is the module installed?"),
    (
        r"'(function|method|builtin_function_or_method|method_descriptor)' (and|object)"
        r"|and '(function|method|builtin_function_or_method)'",
        "One of these names is a function, and not what it returns. Which call lacks its ()?",
    ),
    (
        r"^RecursionError",
        "The function calls itself. What ends the recursion, and does that ever happen?",
    ),
    (
        r"^MemoryError|can't allocate memory|out of memory",
        "How large is the object that this line makes? Every rank makes its own.",
    ),
    (
        r"Pair is not connected|should not be the same as the rank",
        "Which rank is on the other side of this call? A rank cannot send to itself or receive "
        "from itself, and at 1 rank there is no other.",
    ),
    (
        r"Invalid function argument|Expected parameter",
        "A collective takes a tensor. Which of your lines makes one of this number?",
    ),
    (
        r"(must|has to) be contiguous",
        "What is sent must be contiguous. Which tensor is, and how do the numbers that arrive get "
        "into the other one?",
    ),
    (
        r"view size is not compatible",
        "This tensor is not contiguous, and view needs contiguous memory. Which other method makes "
        "it flat?",
    ),
    (
        r"mutually exclusive with shuffle",
        "Two arguments of the loader want to choose the order. Which one deals it to the ranks?",
    ),
    (
        r"no attribute 'set_epoch'",
        "Which object makes the order? It must be told the epoch.",
    ),
    (r"zero-dimensional", "cat joins tensors along a dimension. Do these have one?"),
    (
        r"cannot assign .* as parameter",
        "This replaces a parameter by another tensor. Can you fill the old one?",
    ),
    (r"list index out of range\n?$", "How long is the list, or how many ranks are there?"),
    (
        r"process group twice",
        "The group exists when your function is called. You need not make it.",
    ),
]
OWN_ASSERT = "An assert fails. If it is your own, which two values does it compare?"
GROUP_ENDED = "The group existed when your function was called. Which of your lines has ended it?"
NO_GROUP = "There is no process group here, and none is needed. What do the arguments say?"
ADVICE_OTHERWISE = (
    "What does each name on this line hold when it runs? A print before it shows that."
)
ADVICE_BY_EXIT_CODE = {
    -9: "SIGKILL, not from Python: too little memory for what the cell makes, or a line that "
    "sends the signal.",
    -11: "A crash in compiled code, not in Python. Which argument of the call can it not use?",
}
ENDS_PROCESS = "Which line ends the process (os._exit, os.abort, os.kill) instead of returning?"


def for_failure(
    failure: RankFailed, known: Mapping[str, str], group: bool, printed: str = ""
) -> str:
    """Where to look if a rank raised or died; `known` are an exercise's own words for errors.

    `group` is False if the exercise has no ranks. What it `printed` tells an abort of gloo's, also
    if the rank died before it could be asked where it stands.
    """
    known = {**known, "process group has not been initialized": GROUP_ENDED if group else NO_GROUP}
    place = failure.positions[0] if failure.positions else None
    own = next((text for words, text in known.items() if words in failure.reason), "")
    if not failure.kind:
        code, call = failure.returncode, place.call if place else ""
        call = call or ("a collective" if "gloo::" in printed else "")
        inside = advice.for_death(code, call) if code == -6 else ""
        return own or ADVICE_BY_EXIT_CODE.get(code or 0) or inside or ENDS_PROCESS
    ours = next(
        (text for pattern, text in ADVICE_BY_ERROR if re.search(pattern, failure.reason)), ""
    )
    known_there = advice.for_error(failure.kind, failure.reason)
    others = OWN_ASSERT if failure.kind == "AssertionError" else ADVICE_OTHERWISE
    return own or ours or known_there or others
