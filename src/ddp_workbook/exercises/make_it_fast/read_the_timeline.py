"""Find out from the traces of one step what the ranks wait for.

`events` are the spans of all ranks, on one clock, in no particular order. Each is a tuple
(rank, kind, start, end) in whole milliseconds. The kind is `"compute"`, `"loading"` or `"call"`.
Spans of a rank may overlap: an operator calls others, a loader works in the background, and
several calls are under way at once.

A rank is **idle** in the part of its calls in which it neither computes nor loads. It **waits** in
the part of its idle time in which at least one of the calls that it is in lacks a rank; it waits
for the rank that enters that call last. All ranks make the same calls in the same order: the call
that a rank enters first is the one that the others enter first, and so on. No two calls of a rank,
and no two ranks in a call, begin in the same millisecond.

Return what the step loses most time with:

- `None` if the idle time of all ranks is less than 10 % of the step's length times the number of
  ranks. The length is that from the first start to the last end of all.
- `(None, "network")` if at least half of the idle time is not waiting.
- `(rank, cause)` otherwise. It is the rank for which the others wait longest, all of them together.
  The cause is `"compute"` or `"loading"`: from the time that it spends on each, subtract the mean
  of the others, and take the larger difference. Loading while it computes does not count.

Count each millisecond of a rank once, however many of its spans lie over it. (If it waits for two
late ranks at once, it counts for each of them.)
"""

import random
from typing import Any, NamedTuple

from ddp_workbook.judging import (
    Comparison,
    Observation,
    Pattern,
    SingleProcessCheck,
    edit,
    in_words,
)
from ddp_workbook.judging.equality import is_index

MINUTES = 15
HINTS = [
    "The times are whole milliseconds. A set of them, from `range(start, end)`, never counts one "
    "twice, and `-` takes away what another set covers. Begin with a function that returns the set "
    "of a rank and some kinds.",
    "Sort each rank's calls by their start, and `zip` them: then you have the same call on all "
    "ranks. Who entered it last? From when to when do the others wait for that one?",
    "A rank can wait in two calls at once. Keep, for each late rank, a set of pairs (who waits, "
    "millisecond).",
]


def read_the_timeline(
    events: list[tuple[int, str, int, int]],
) -> tuple[int | None, str] | None:
    """What the step loses most time with: (late rank, cause), (None, "network"), or None."""
    ### BEGIN SOLUTION
    ranks = sorted({rank for rank, *_ in events})
    length = max(end for *_, end in events) - min(start for _, _, start, _ in events)

    def during(rank, *kinds):
        """The milliseconds in which this rank has a span of these kinds."""
        own = [(start, end) for r, kind, start, end in events if r == rank and kind in kinds]
        return {ms for start, end in own for ms in range(start, end)}

    def mean_more(late, spent):
        """How much more this rank has spent than the others."""
        others = [spent[rank] for rank in ranks if rank != late]
        return spent[late] - sum(others) / len(others)

    busy = {rank: during(rank, "compute", "loading") for rank in ranks}
    idle = sum(len(during(rank, "call") - busy[rank]) for rank in ranks)
    entered = [sorted(e[2] for e in events if e[0] == r and e[1] == "call") for r in ranks]
    waits = {rank: set() for rank in ranks}  # pairs (who waits for it, millisecond)
    for starts in zip(*entered, strict=True):
        late = ranks[starts.index(max(starts))]
        for rank, start in zip(ranks, starts, strict=True):
            waits[late] |= {(rank, ms) for ms in set(range(start, max(starts))) - busy[rank]}
    waiting = len(set().union(*waits.values()))
    if idle < 0.1 * length * len(ranks):
        return None
    if idle - waiting >= waiting:
        return None, "network"
    late = max(ranks, key=lambda rank: len(waits[rank]))
    compute = {rank: len(during(rank, "compute")) for rank in ranks}
    loading = {rank: len(during(rank, "loading") - during(rank, "compute")) for rank in ranks}
    more = {"compute": mean_more(late, compute), "loading": mean_more(late, loading)}
    return late, max(more, key=lambda cause: more[cause])
    ### END SOLUTION


Spans = tuple[tuple[str, int, int], ...]


class Run(NamedTuple):
    """One call: the spans of each rank, and what is right."""

    what: str
    spans: tuple[Spans, ...]
    right: tuple[int | None, str] | None


def computes(*pairs: tuple[int, int]) -> Spans:
    """Spans in which a rank computes."""
    return tuple(("compute", *pair) for pair in pairs)


def loads(*pairs: tuple[int, int]) -> Spans:
    """Spans in which it loads."""
    return tuple(("loading", *pair) for pair in pairs)


def calls(*pairs: tuple[int, int]) -> Spans:
    """Its calls."""
    return tuple(("call", *pair) for pair in pairs)


CASES = [
    Run(
        "two ranks, and a loader that takes longer on one of them",
        (
            loads((0, 2)) + computes((2, 40), (62, 65)) + calls((30, 95)),
            loads((0, 50)) + computes((50, 88)) + calls((78, 95)),
        ),
        (1, "loading"),
    ),
    Run(
        "four ranks, of which one computes longer",
        (
            computes((0, 30), (101, 105)) + calls((29, 100)),
            computes((0, 32)) + calls((31, 100)),
            computes((0, 92)) + calls((91, 100)) + loads((92, 94)),
            computes((0, 34)) + calls((33, 100)),
        ),
        (2, "compute"),
    ),
    Run(
        "two ranks, and a single bucket at the end",
        (
            computes((0, 40), (110, 114)) + calls((36, 110)),
            computes((0, 44), (110, 114)) + calls((44, 110)),
        ),
        (None, "network"),
    ),
    Run(
        "three ranks, with calls that are under way while they compute",
        tuple(
            computes((0, 100)) + calls((20 + n, 60), (40 + n, 90), (70 + n, 105)) for n in range(3)
        ),
        None,
    ),
    Run(
        "two ranks, with several calls under way at once",
        (
            computes((0, 20), (90, 92)) + calls((20, 62), (21, 73), (22, 84), (23, 90)),
            computes((0, 42), (90, 92)) + calls((39, 62), (41, 73), (43, 84), (44, 90)),
        ),
        (None, "network"),
    ),
    Run(
        "two ranks, and operators that call operators",
        (
            computes((0, 40), (101, 104)) + calls((38, 100)),
            computes((0, 46), (1, 44), (2, 43)) + loads((46, 88)) + calls((89, 100)),
        ),
        (1, "loading"),
    ),
    Run(
        "three ranks, and a loader in the background",
        (
            computes((0, 40)) + loads((0, 10)) + calls((39, 100)),
            computes((0, 90)) + loads((5, 85)) + calls((89, 100)),
            computes((0, 44)) + loads((0, 8)) + calls((42, 100)),
        ),
        (1, "compute"),
    ),
    Run(
        "three ranks, all of which are late, one of them more often",
        (
            computes((0, 20), (120, 126))
            + calls((21, 32), (33, 45), (46, 58), (59, 120), (126, 130)),
            computes((0, 28), (120, 123))
            + calls((29, 32), (42, 45), (55, 58), (60, 120), (123, 130)),
            computes((0, 19), (120, 122))
            + loads((61, 108))
            + calls((20, 32), (34, 45), (47, 58), (110, 120), (122, 130)),
        ),
        (2, "loading"),
    ),
    Run(
        "three ranks: one is late while the others still compute, another later",
        (
            computes((0, 60), (101, 104)) + calls((5, 64), (63, 100)),
            computes((0, 58)) + loads((101, 109)) + calls((55, 64), (62, 100)),
            computes((0, 62)) + loads((65, 93)) + calls((6, 64), (94, 100)),
        ),
        (2, "loading"),
    ),
    Run(
        "four ranks: one computes longest, but after the call",
        (
            loads((0, 44)) + computes((44, 60)) + calls((59, 70)),
            computes((0, 14), (70, 120)) + calls((15, 70)),
            computes((0, 17)) + calls((16, 70)),
            computes((0, 13)) + calls((12, 70)),
        ),
        (0, "loading"),
    ),
    Run(
        "two ranks that idle little",
        (
            computes((0, 90)) + calls((10, 96)),
            computes((0, 94)) + calls((92, 96)),
        ),
        None,
    ),
    Run(
        "two ranks: the late one loads a lot, as the other does, and computes more",
        (
            loads((0, 60)) + computes((60, 70)) + calls((70, 112)),
            loads((0, 62)) + computes((62, 104)) + calls((104, 112)),
        ),
        (1, "compute"),
    ),
    Run(
        "three ranks, and one that loads again between two calls",
        (
            computes((0, 30)) + calls((30, 40), (41, 90)),
            computes((0, 28)) + calls((31, 40), (42, 90)),
            computes((0, 29)) + loads((44, 64)) + calls((29, 40), (43, 90)),
        ),
        (None, "network"),
    ),
    Run(
        "two ranks that load the next batch while a call is under way",
        (
            computes((0, 40), (104, 110)) + calls((40, 104)) + loads((42, 101)),
            computes((0, 41), (104, 110)) + calls((41, 104)) + loads((44, 104)),
        ),
        None,
    ),
    Run(
        "two ranks: one waits in three calls at once",
        (
            computes((0, 20)) + calls((20, 68), (21, 75), (22, 84)),
            computes((0, 66)) + calls((64, 68), (65, 75), (66, 84)),
        ),
        (1, "compute"),
    ),
    Run(
        "three ranks: two wait in two calls at once, and later two in one call for longer",
        (
            computes((0, 10)) + calls((10, 66), (12, 67), (70, 142)),
            computes((0, 62)) + calls((62, 66), (64, 67), (71, 142)),
            computes((0, 11), (67, 140)) + calls((11, 66), (13, 67), (140, 142)),
        ),
        (2, "compute"),
    ),
    Run(
        "two ranks: one call is complete, and another is waited for meanwhile",
        (
            computes((0, 10)) + calls((10, 100), (13, 100)),
            computes((0, 90)) + calls((11, 100), (90, 100)),
        ),
        (1, "compute"),
    ),
    Run(
        "two ranks, idle for just 10 % of the step",
        (
            computes((0, 80)) + calls((80, 100)),
            computes((0, 96), (97, 100)) + loads((96, 97)) + calls((96, 100)),
        ),
        (1, "compute"),
    ),
    Run(
        "two ranks, and half of the idle time is waiting",
        (computes((0, 70)) + calls((70, 100)), computes((0, 90)) + calls((90, 100))),
        (None, "network"),
    ),
    Run(
        "three ranks, with one call after the other",
        tuple(
            computes((0, 20 + n), (35, 38), (53, 56), (71, 74))
            + calls((20 + n, 35), (38 + n, 53), (56 + n, 71), (74 + n, 89))
            for n in range(3)
        ),
        (None, "network"),
    ),
]


def make_args(case: Run) -> tuple[list[tuple[int, str, int, int]]]:
    """All ranks' spans, shuffled, on a clock that does not begin with 0."""
    generator = random.Random(case.what)
    clock_start = generator.randrange(1000)
    events = [
        (rank, kind, clock_start + start, clock_start + end)
        for rank, spans in enumerate(case.spans)
        for kind, start, end in spans
    ]
    generator.shuffle(events)
    return (events,)


def form_error(returned: Any) -> str:
    """Whether it can be read as a rank and a cause; "" if it can."""
    if returned is None:
        return ""
    if not (isinstance(returned, tuple | list) and len(returned) == 2):
        return in_words(returned)
    rank, cause = returned
    is_known = (cause == "network") if rank is None else (is_index(rank) and cause in CAUSES)
    return "" if is_known else in_words(returned)


CAUSES = ("compute", "loading")


def is_pair(obs: Observation) -> bool:
    """Whether a rank and a word came back."""
    pair = obs.actual
    return isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[1], str)


def kind(returned: Any) -> str:
    """Whether somebody is late, or what else it is."""
    if returned is None:
        return "nothing"
    return "the network" if returned[0] is None else "a late rank"


FORM = Comparison(
    select=lambda obs: form_error(obs.actual),
    expected="",
    mistakes={
        "The network is no rank's fault. Which rank goes with it?": Pattern(
            lambda obs: is_pair(obs) and obs.actual[1] == "network"
        ),
        "A rank that is late has one of two causes. Is yours one of these words?": Pattern(is_pair),
    },
    hint="Which of your lines makes the pair of a rank and a word?",
    actual="{value}",
    required='a pair such as (2, "loading"), (None, "network"), or None',
)
WHAT = Comparison(
    select=lambda obs: kind(obs.actual),
    expected=lambda case: kind(case.right),
    hint="Write down each rank's idle time, and the part of it that is waiting. Which of the "
    "two limits decides here?",
    actual="{value}",
    required="{expected}",
    show=str,
)
WHO = Comparison(
    select=lambda obs: obs.actual and obs.actual[0],
    expected=lambda case: case.right and case.right[0],
    mistakes={
        "Nobody waits for this rank. Who enters a call last, and how long are the others idle "
        "until then?": Pattern(
            lambda obs: (
                obs.value is not None
                and all(max(starts) != starts[obs.value] for starts in entries(obs.case) if starts)
            )
        )
    },
    hint="For each call, who enters it last? Add up, for each such rank, how long the others "
    "are idle until then.",
    actual="rank {value}",
    required="rank {expected}",
)
CAUSE = Comparison(
    select=lambda obs: obs.actual and obs.actual[1],
    expected=lambda case: case.right and case.right[1],
    hint="How long does the late rank compute and load, and how long do the others?",
    actual='"{value}"',
    required='"{expected}"',
    show=str,
)


def entries(case: Run) -> list[tuple[int, ...]]:
    """When each rank enters each call."""
    of_ranks = [sorted(s for kind, s, _ in spans if kind == "call") for spans in case.spans]
    return list(zip(*of_ranks, strict=True))


LATE = "late = max(ranks, key=lambda rank: len(waits[rank]))"
PAIRS = "{(rank, ms) for ms in set(range(start, max(starts))) - busy[rank]}"
CHECK = SingleProcessCheck(
    cases=CASES,
    make_args=make_args,
    call_text=lambda case: f"read_the_timeline(events of {case.what})",
    comparisons=[FORM, WHAT, WHO, CAUSE],
    mistakes={
        "This rank waits longest, so it came first. Whom does it wait for?": [
            edit("waits[late] |= {", "waits[rank] |= {"),
            edit(LATE, 'late = max(ranks, key=lambda rank: len(during(rank, "call")))'),
            edit(
                LATE, 'late = max(ranks, key=lambda rank: len(during(rank, "call") - busy[rank]))'
            ),
        ],
        "A rank that still computes, or loads, while its call is under way is not idle. Is that "
        "time taken away?": [
            edit('during(rank, "call") - busy[rank]', 'during(rank, "call")'),
            edit(" - busy[rank]}", "}"),
        ],
        "Is a rank idle while it loads? Which kinds make it busy?": edit(
            'during(rank, "compute", "loading")', 'during(rank, "compute")'
        ),
        "A rank waits in two calls at once, and one millisecond is lost, not two.": [
            edit("{(rank, ms)", "{(rank, ms, starts)"),
            edit(
                'len(during(rank, "call") - busy[rank])',
                "sum(e - s - len({*range(s, e)} & busy[rank]) for r, k, s, e in events "
                'if r == rank and k == "call")',
            ),
        ],
        "An operator that calls others is computing once. Do your spans overlap?": edit(
            'len(during(rank, "compute"))',
            'sum(e - s for r, k, s, e in events if r == rank and k == "compute")',
        ),
        "This loader works while the rank computes. Does anybody wait for that?": edit(
            'len(during(rank, "loading") - during(rank, "compute"))', 'len(during(rank, "loading"))'
        ),
        "Being late more often is not being late for longer. What is counted for each rank?": edit(
            LATE,
            "often = [starts.index(max(starts)) for starts in zip(*entered, strict=True)]\n"
            "    late = ranks[max(often, key=often.count)]",
        ),
        "Only one call was looked at. Who is late in the others?": [
            edit("in zip(*entered, strict=True)", "in [*zip(*entered, strict=True)][:1]"),
            edit("in zip(*entered, strict=True)", "in [*zip(*entered, strict=True)][-1:]"),
            edit(f"    {LATE}\n", ""),
        ],
        "The events are in no order. Which call of this rank is its first?": edit(
            '[sorted(e[2] for e in events if e[0] == r and e[1] == "call") for r in ranks]',
            '[[e[2] for e in events if e[0] == r and e[1] == "call"] for r in ranks]',
        ),
        "This is what the late rank does most. Which of it does it do more than the others?": edit(
            "spent[late] - sum(others) / len(others)", "spent[late]"
        ),
        "The late rank has more of the other kind. How long does each compute, and load?": edit(
            "max(more, key=lambda cause: more[cause])", "min(more, key=more.get)"
        ),
        "Who computes longest may do so when nobody waits. For whom do the others wait?": [
            edit(LATE, "late = max(ranks, key=lambda rank: len(busy[rank]))"),
            edit(LATE, 'late = max(ranks, key=lambda rank: len(during(rank, "compute")))'),
        ],
        "The time of all ranks is compared with the step of one. How many are there?": edit(
            " * len(ranks):", ":"
        ),
        "Is the clock 0 when the step begins?": edit(
            " - min(start for _, _, start, _ in events)", ""
        ),
        "The idle time is compared with the waiting in it, which is never more. How much of "
        "it is not waiting?": edit("idle - waiting >= waiting", "idle >= waiting"),
        "The network is never the answer here. How much of the idle time is not waiting?": edit(
            "idle - waiting >= waiting", "waiting == 0"
        ),
        "A step that idles for less than a tenth has nothing to find. Is that asked first?": edit(
            "idle < 0.1", "idle < 0.0"
        ),
    },
    unchanged_hint="Which line changes the list of the caller?",
    errors={
        "argument 2 is": "Does every rank have a list of its calls, and all equally many?",
    },
    on_pass="what 20 steps of 2 to 4 ranks lose their time with",
)
