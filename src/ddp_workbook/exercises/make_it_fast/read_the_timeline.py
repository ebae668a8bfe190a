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
import re
from collections import defaultdict
from typing import Any, NamedTuple

from ddp_workbook.judging import (
    Comparison,
    Pattern,
    SingleProcessCheck,
    edit,
)

MINUTES = 25
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


class Run(NamedTuple):
    """One call: what happens in the step, and its spans: (rank, kind, start, end)."""

    what: str
    spans: list[tuple[int, str, int, int]]


# What happens in each run, then the spans of each rank
RUNS = """
two ranks, and a loader that takes longer on one of them
    loading 0-2, compute 2-40 62-65, call 30-95
    loading 0-50, compute 50-88, call 78-95
four ranks, of which one computes longer
    compute 0-30 101-105, call 29-100
    compute 0-32, call 31-100
    compute 0-92, call 91-100, loading 92-94
    compute 0-34, call 33-100
two ranks, and a single bucket at the end
    compute 0-40 110-114, call 36-110
    compute 0-44 110-114, call 44-110
three ranks, with calls that are under way while they compute
    compute 0-100, call 20-60 40-90 70-105
    compute 0-100, call 21-60 41-90 71-105
    compute 0-100, call 22-60 42-90 72-105
two ranks, with several calls under way at once
    compute 0-20 90-92, call 20-62 21-73 22-84 23-90
    compute 0-42 90-92, call 39-62 41-73 43-84 44-90
two ranks, and operators that call operators
    compute 0-40 101-104, call 38-100
    compute 0-46 1-44 2-43, loading 46-88, call 89-100
three ranks, and a loader in the background
    compute 0-40, loading 0-10, call 39-100
    compute 0-90, loading 5-85, call 89-100
    compute 0-44, loading 0-8, call 42-100
three ranks, all of which are late, one of them more often
    compute 0-20 120-126, call 21-32 33-45 46-58 59-120 126-130
    compute 0-28 120-123, call 29-32 42-45 55-58 60-120 123-130
    compute 0-19 120-122, loading 61-108, call 20-32 34-45 47-58 110-120 122-130
three ranks: one is late while the others still compute, another later
    compute 0-60 101-104, call 5-64 63-100
    compute 0-58, loading 101-109, call 55-64 62-100
    compute 0-62, loading 65-93, call 6-64 94-100
four ranks: one computes longest, but after the call
    loading 0-44, compute 44-60, call 59-70
    compute 0-14 70-120, call 15-70
    compute 0-17, call 16-70
    compute 0-13, call 12-70
two ranks that idle little
    compute 0-90, call 10-96
    compute 0-94, call 92-96
two ranks: the late one loads a lot, as the other does, and computes more
    loading 0-60, compute 60-70, call 70-112
    loading 0-62, compute 62-104, call 104-112
three ranks, and one that loads again between two calls
    compute 0-30, call 30-40 41-90
    compute 0-28, call 31-40 42-90
    compute 0-29, loading 44-64, call 29-40 43-90
two ranks that load the next batch while a call is under way
    compute 0-40 104-110, call 40-104, loading 42-101
    compute 0-41 104-110, call 41-104, loading 44-104
two ranks: one waits in three calls at once
    compute 0-20, call 20-68 21-75 22-84
    compute 0-66, call 64-68 65-75 66-84
three ranks: two wait in two calls at once, and later two in one call for longer
    compute 0-10, call 10-66 12-67 70-142
    compute 0-62, call 62-66 64-67 71-142
    compute 0-11 67-140, call 11-66 13-67 140-142
two ranks: one call is complete, and another is waited for meanwhile
    compute 0-10, call 10-100 13-100
    compute 0-90, call 11-100 90-100
two ranks, idle for just 10 % of the step
    compute 0-80, call 80-100
    compute 0-96 97-100, loading 96-97, call 96-100
two ranks, and half of the idle time is waiting
    compute 0-70, call 70-100
    compute 0-90, call 90-100
three ranks, with one call after the other
    compute 0-20 35-38 53-56 71-74, call 20-35 38-53 56-71 74-89
    compute 0-21 35-38 53-56 71-74, call 21-35 39-53 57-71 75-89
    compute 0-22 35-38 53-56 71-74, call 22-35 40-53 58-71 76-89
"""


def spans_of(ranks: list[str]) -> list[tuple[int, str, int, int]]:
    """The spans in a line for each rank."""
    return [
        (rank, kind, int(start), int(end))
        for rank, line in enumerate(ranks)
        for kind, spans in re.findall(r"(\w+)((?: \d+-\d+)+)", line)
        for start, end in re.findall(r"(\d+)-(\d+)", spans)
    ]


def make_args(case: Run) -> tuple[list[tuple[int, str, int, int]]]:
    """All ranks' spans, shuffled, on a clock that does not begin with 0."""
    generator = random.Random(case.what)
    clock_start = generator.randrange(1000)
    events = [
        (r, kind, clock_start + start, clock_start + end) for r, kind, start, end in case.spans
    ]
    generator.shuffle(events)
    return (events,)


def found(returned: Any) -> str:
    """Whether somebody is late, or what else it is."""
    if returned is None:
        return "nothing"
    return "the network" if returned[0] is None else "a late rank"


def is_last(rank: int, case: Run) -> bool:
    """Whether this rank is the last in any call."""
    starts: dict[int, list[int]] = defaultdict(list)
    for own, kind, start, _ in sorted(case.spans):
        if kind == "call":
            starts[own].append(start)
    return any(max(of_call) == of_call[rank] for of_call in zip(*starts.values(), strict=True))


def random_args(rng: random.Random) -> tuple[list[tuple[int, str, int, int]]]:
    """Two to four ranks that load, compute and call; some calls are waited for at once."""
    ranks = range(rng.randint(2, 4))
    now, calls = [0 for _ in ranks], rng.randint(1, 4)  # each rank's clock
    events: list[tuple[int, str, int, int]] = []
    for _ in range(calls):
        for rank in ranks:
            for kind, ms in (("loading", (0, 0, 0, 30)), ("compute", (10, 20, 40, 80))):
                if took := rng.choice(ms):
                    events.append((rank, kind, now[rank], now[rank] + took + rng.randrange(9)))
                    now[rank] = events[-1][3]
        while len({*now}) < len(ranks):  # no two ranks enter a call in the same millisecond
            now[rng.choice(ranks)] += 1
        end = max(now) + rng.choice([5, 10, 20, 40])
        events += [(rank, "call", now[rank], end) for rank in ranks]
        waited_for = rng.random() < 0.6  # else they go on while it is under way
        now = [end if waited_for else ms + 1 for ms in now]
    return (rng.sample(events, len(events)),)


LATE = "late = max(ranks, key=lambda rank: len(waits[rank]))"
CHECK = SingleProcessCheck(
    cases=[
        Run(what, spans_of(ranks.splitlines()))
        for what, ranks in re.findall(r"^(\S.*)\n((?: .*\n)+)", RUNS, re.M)
    ],
    make_args=make_args,
    random_args=random_args,
    call_text="read_the_timeline(events of {case.what})",
    compare={
        "form": Comparison(
            "Which of your lines makes the pair of a rank and a word?",
            required='a pair such as (2, "loading"), (None, "network"), or None',
        ),
        "answer": Comparison(
            "Write down each rank's idle time, and the part of it that is waiting. Which of the "
            "two limits decides here?",
            select=lambda obs: found(obs.actual),
            actual="{value}",
        ),
        "rank": Comparison(
            "For each call, who enters it last? Add up, for each such rank, how long the others "
            "are idle until then.",
            select=lambda obs: obs.actual and obs.actual[0],
        ),
        "cause": Comparison(
            "How long does the late rank compute and load, and how long do the others?",
            select=lambda obs: obs.actual and obs.actual[1],
        ),
    },
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
        "The network is no rank's fault. Which rank goes with it?": Pattern(
            lambda obs: obs.actual[0] is not None and obs.actual[1] == "network", "answer"
        ),
        "A rank that is late has one of two causes. Is yours one of these words?": Pattern(
            lambda obs: obs.value not in ("compute", "loading"), "cause"
        ),
        "Nobody waits for this rank. Who enters a call last, and how long are the others idle "
        "until then?": Pattern(
            lambda obs: obs.value is not None and not is_last(obs.value, obs.case), "rank"
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
