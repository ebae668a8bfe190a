"""Find out who makes four ranks hang, from what the flight recorder of each rank holds.

`dumps[r]` is the list of all collectives that rank r has entered, in order, as PyTorch 2.13
recorded them in jobs that really hung (gloo). `groups` says which ranks are in which group:
`{"0": [0, 1, 2, 3], "1": [0, 1], "2": [2, 3]}`; "0" is the world. An entry is a dict:

| key | such as | meaning |
|---|---|---|
| `"process_group"` | `["0", "default_pg"]` | the group's name comes first |
| `"collective_seq_id"` | `4` | the rank's calls in this group are numbered from 1 |
| `"profiling_name"` | `"gloo:all_reduce"` | backend and call |
| `"input_sizes"` | `[[8]]` | shapes |
| `"retired"` | `False` | False while this rank still waits in it |
| `"frames"` | `[..., {"filename": "train.py", "line": 52, ...}]` | the stack, innermost first |

Return (ranks, call, line): which ranks are missing, in order; the call that they never entered,
such as "all_reduce"; and from which line of `train.py` the others entered it. The stack begins in
PyTorch's files; take the innermost frame of `train.py`. Return None if nobody is missing.

- In a group, all ranks make the same calls in the same order. Look for the first call that some
  rank has not made. The source of a broadcast does not wait for the others, and may be ahead.
- A rank that made another call in its place is missing, too: what most ranks called is right.
- A rank that waits in one group cannot come to a call of another one. Blame nobody for that: if a
  group lacks such a rank, look in the other groups.
"""

import json
import random
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from ddp_workbook.judging import (
    Comparison,
    Pattern,
    SingleProcessCheck,
    edit,
    in_words,
)

MINUTES = 18
HINTS = [
    "Write the names of the calls of one group in a table: a column for each rank, a row for each "
    "collective_seq_id. Which is the first row that is not the same in all columns?",
    "A row may have gaps, and another name in some columns. `zip_longest` of itertools gives the "
    "rows, `Counter` of collections the name that most ranks have.",
    "Before you name a group's missing ranks: does one of them have an entry in another group that "
    "is not retired? Then it waits there, and somebody else is missing in that group.",
]


def who_is_missing(
    dumps: list[list[dict]], groups: dict[str, list[int]]
) -> tuple[list[int], str, int] | None:
    """Return the missing ranks, the call that they never entered, and its line; None if none is."""
    ### BEGIN SOLUTION
    waits_in = {
        rank: entry["process_group"][0]
        for rank, entries in enumerate(dumps)
        for entry in entries
        if not entry["retired"]
    }
    for group, ranks in groups.items():
        own = [[e for e in dumps[rank] if e["process_group"][0] == group] for rank in ranks]
        for calls in zip_longest(*own):
            names = [call and call["profiling_name"] for call in calls]
            name = Counter(filter(None, names)).most_common(1)[0][0]
            missing = [rank for rank, one in zip(ranks, names, strict=True) if one != name]
            if not missing:
                continue
            if any(waits_in.get(rank, group) != group for rank in missing):
                break  # they cannot come: somebody else is missing in the group where they wait
            frames = calls[names.index(name)]["frames"]
            line = next(one["line"] for one in frames if one["filename"] == "train.py")
            return missing, name.removeprefix("gloo:"), line
    return None
    ### GIVEN
    # missing, call, line = [], None, None
    # for group, ranks in groups.items():
    #     # the calls of this group, a list for each of its ranks
    #     own = [[e for e in dumps[rank] if e["process_group"][0] == group] for rank in ranks]
    #     # TODO: which is the first call that some rank has not made, and who has not?
    # return (missing, call, line) if missing else None
    ### END SOLUTION


DUMPS_FILE = Path(__file__).parents[4] / "data" / "when_it_hangs" / "dumps.json"


class Job(NamedTuple):
    """A job whose ranks have recorded their calls: who is missing, in which call and line."""

    name: str
    ranks: list[int] | None
    call: str | None
    line: int | None


JOBS = [
    Job("ahead", [3], "broadcast", 52),
    Job("leaves_early", [2], "all_reduce", 44),
    Job("another_call", [0], "all_reduce", 61),
    Job("one_alone", [0, 2, 3], "barrier", 68),
    Job("in_a_pair", [1], "all_reduce", 37),
    Job("in_the_other_pair", [3], "broadcast", 87),
    Job("complete", None, None, None),
]


@cache
def read_dumps() -> dict[str, dict]:
    """By job, its groups and dumps."""
    return {job["job"]: job for job in json.loads(DUMPS_FILE.read_text("utf-8"))}


def make_args(job: Job) -> tuple[list[list[dict]], dict[str, list[int]]]:
    """The dumps of a job, and its groups."""
    return read_dumps()[job.name]["dumps"], read_dumps()[job.name]["groups"]


def call_text(job: Job) -> str:
    """The call, with the last three entries of each rank."""
    rows = []
    for rank, entries in enumerate(make_args(job)[0]):
        call_texts = [f"{e['process_group'][0]}:{e['profiling_name'][5:]}" for e in entries[-3:]]
        more = "… " if len(entries) > 3 else ""
        waits = "" if entries[-1]["retired"] else " (waits)"
        rows.append(f"rank {rank}, {len(entries)} entries: {more}{', '.join(call_texts)}{waits}")
    return "\n".join(["who_is_missing(dumps, groups), group:call", *rows])


def same_number_of_calls(job: Job) -> bool:
    """Whether the ranks of each group have made the same number of calls in it."""
    dumps, groups = make_args(job)
    counts = [Counter(e["process_group"][0] for e in entries) for entries in dumps]
    return all(len({counts[rank][g] for rank in ranks}) == 1 for g, ranks in groups.items())


GROUPS = {"0": [0, 1, 2, 3], "1": [0, 1], "2": [2, 3]}
TORCH = {"filename": "torch/distributed/distributed_c10d.py", "line": 3252}


def random_args(rng: random.Random) -> tuple[list[list[dict]], dict[str, list[int]]]:
    """Some calls that are over, and one in which ranks wait, or nobody does."""
    dumps: list[list[dict]] = [[] for _ in GROUPS["0"]]

    def call(ranks: Iterable[int], group: str, name: str, line: int, retired: bool = False) -> None:
        frames = [
            TORCH,
            {"filename": "train.py", "line": line},
            {"filename": "train.py", "line": 9},
        ]
        for rank in ranks:
            number = 1 + sum(entry["process_group"][0] == group for entry in dumps[rank])
            entry = {"process_group": [group, ""], "collective_seq_id": number, "retired": retired}
            entry |= {"profiling_name": f"gloo:{name}", "input_sizes": [[8]], "frames": frames}
            dumps[rank].append(entry)

    for line in range(20, 20 + rng.randrange(4)):
        group, name = rng.choice("0012"), rng.choice(["all_reduce", "barrier"])
        call(GROUPS[group], group, name, line, retired=True)
    who, ranks = rng.choice(["nobody", "world", "ahead", "pair"]), rng.sample(range(4), 4)
    if who == "world":
        missing = rng.randint(1, 3)
        call(ranks[missing:], "0", "all_reduce", 40)
        call(ranks[:1] if missing == 1 and rng.random() < 0.5 else [], "0", "barrier", 41)
    elif who == "ahead":  # the source of a broadcast, which does not wait
        call([3], "0", "broadcast", 40, retired=True)
        call(rng.choice([[2], [0, 2], [1, 2]]), "0", "broadcast", 40)
        call([3], "2", "all_reduce", 50)
    elif who == "pair":
        group = rng.choice("12")
        call([rng.choice(GROUPS[group])], group, "all_reduce", 50)
        call(rng.choice([[], {0, 1, 2, 3} - {*GROUPS[group]}]), "0", "barrier", 40)
    return dumps, GROUPS


WAITS_ELSEWHERE, MISSING = (
    "if any(waits_in.get(rank, group) != group for rank in missing):",
    "if one != name]",
)
ROW_LOOP = "for calls in zip_longest(*own):"
CHECK = SingleProcessCheck(
    cases=JOBS,
    make_args=make_args,
    random_args=random_args,
    call_text=call_text,
    compare={
        "form": Comparison(
            "Which of your lines makes the list of ranks, the name and the line number?",
            required='such as ([2], "all_reduce", 52), or None',
        ),
        "ranks": Comparison(
            "Go through the rows of each group's table. Which is the first that some rank has "
            "not made, and does that rank wait in another group?",
            actual=lambda obs: in_words(obs.value) + (f" in {obs.actual[1]}" if obs.actual else ""),
            required=lambda obs: (
                f"{obs.expected} in {obs.case.call}" if obs.expected else "None: nobody is missing"
            ),
        ),
        "call": "The ranks are right. Which call of which group did they never enter? Leave the "
        "backend out of its name.",
        "line": "Which frame is the innermost that belongs to train.py, and whose stack is it? "
        "Take that of a rank that has entered the call.",
    },
    mistakes={
        "A rank that is ahead waits in the newest call, but others wait in an older one. Which is "
        "the first row with a gap?": edit(ROW_LOOP, "for calls in [*zip_longest(*own)][::-1]:"),
        "One rank's call is taken as the right one. Which call have most ranks made?": edit(
            "Counter(filter(None, names)).most_common(1)[0][0]", "next(filter(None, names))"
        ),
        "A rank with another call in this row has not made the right one, either.": [
            edit(MISSING, "if one is None]"),
            edit(MISSING, "if one is None]") + edit(WAITS_ELSEWHERE, "if False:"),
        ],
        "One of these ranks waits in its other group, so it cannot come. In which group is nobody "
        "excused?": edit(WAITS_ELSEWHERE, "if False:"),
        "The ranks that wait elsewhere are left out, but the call is still the one that they could "
        "not come to. Which call did the others never enter?": edit(
            WAITS_ELSEWHERE,
            "missing = [r for r in missing if waits_in.get(r, group) == group]\n"
            "            if not missing:",
        ),
        "Only the world was searched. Which other groups does a rank belong to?": edit(
            "in groups.items()", "in [*groups.items()][:1]"
        ),
        "These are places in the group. Which ranks of the world stand there?": edit(
            "zip(ranks, names", "zip(range(4), names[:4]"
        )
        + edit("strict=True", "strict=False"),
        "These ranks have entered the call. Who has not?": edit(MISSING, "if one == name]"),
        "Only one rank is named, and several are missing.": edit(
            "return missing,", "return missing[:1],"
        ),
        "This line is in PyTorch's own file. Which frame is the first that is yours?": edit(
            'if one["filename"] == "train.py"', "if one"
        ),
        "This is the outermost frame. Where in train.py does the call itself stand?": edit(
            'next(one["line"] for one in frames if one["filename"] == "train.py")',
            'frames[-1]["line"]',
        ),
        "No rank has made fewer calls here, but one has made another call in the place of the "
        "right one. Which of your lines compares the names in a row?": Pattern(
            lambda obs: obs.value is None and obs.expected and same_number_of_calls(obs.case),
            "ranks",
        ),
        "None came back, and ranks wait. Does your loop reach the last call of the rank that has "
        "made most?": Pattern(lambda obs: obs.value is None, "ranks"),
        "All ranks have made all calls here. What do you return then?": Pattern(
            lambda obs: obs.expected is None, "ranks"
        ),
    },
    unchanged_hint="Which line changes what the recorder has noted?",
    errors={
        "NoneType": "A rank without an entry in this row has None there. Which line needs one?",
        "out of range": "The lists have different lengths. Up to which row does each rank go?",
    },
    on_pass="who is missing in which call, from which line, in 6 jobs that hung, and nobody in a "
    "seventh",
)
