"""Find the rank that makes the others wait, from the times that each rank has noted.

`times[r][s]` is the pair (entered, left) of rank r: when it entered the all-reduce at the end of
step s, and when it came out. Ranks 0 and 1 are on one host, ranks 2 and 3 on the next, and so on.
The times are seconds on the host's own clock. The clocks run equally fast, but they were never set
alike: a clock may be hours behind another one.

- Nobody comes out of an all-reduce before the last rank is in it. All come out together, and begin
  the next step. The message itself takes a while, in some steps longer than in others.
- A rank is late in a step if each of the others has waited at least 10 ms longer than it has. At
  most one rank is ever late; all other differences, however large, are noise.
- Return (rank, when). `when` is "always" if it was late in every step, "first" if in step 0 alone,
  which often is compilation or a cold cache, and "sometimes" if anything else. Return None if
  nobody was ever late.

There are at least two ranks and two steps. Do not change `times`.
"""

import random
from typing import NamedTuple

from ddp_workbook.judging import (
    Comparison,
    Pattern,
    SingleProcessCheck,
    body,
    edit,
)

MINUTES = 8
HINTS = [
    "Which difference of two times is the same, however wrong the host's clock is?",
    "In an all-reduce, the ranks that are on time wait for the one that is late. How long does the "
    "late one wait, compared with the others?",
    "For each step, compare the shortest wait with the second shortest. Note the steps in which "
    "they are far apart, then decide between always, first and sometimes.",
]


def find_the_straggler(times: list[list[tuple[float, float]]]) -> tuple[int, str] | None:
    """Return the late rank and when it is: "always", "first" or "sometimes"; None if none is."""
    ### BEGIN SOLUTION
    waits = [[left - entered for entered, left in own] for own in times]
    rank, steps = 0, []
    for step, of_all in enumerate(zip(*waits, strict=True)):
        shortest, second = sorted(of_all)[:2]
        if second - shortest >= 0.01:
            rank = of_all.index(shortest)
            steps.append(step)
    if not steps:
        return None
    if len(steps) == len(times[0]):
        return rank, "always"
    return rank, "first" if steps == [0] else "sometimes"
    ### END SOLUTION


class Run(NamedTuple):
    """One call: who is late, in which steps, and what the ranks' clocks say."""

    what: str
    ranks: int
    rank: int | None
    steps: tuple[int, ...]  # in which that rank is late
    clocks: tuple[float, ...] = (7200.5, 0.0)  # seconds, by host
    delay_s: float = 0.05
    message_s: float = 0.003
    num_steps: int = 6


CASES = [
    Run("rank 2 is late in steps 1 and 4", 4, 2, (1, 4)),
    Run("rank 0 is late in every step", 4, 0, tuple(range(6)), (-50.25, 0.0)),
    Run("rank 3 is late in step 0 alone", 4, 3, (0,), delay_s=2.5),
    Run("nobody is late", 4, None, ()),
    Run("rank 1 is late in step 0 and in the last", 4, 1, (0, 5), (3600.0, 0.0)),
    Run("nobody is late, and the messages are slow", 4, None, (), (0.0, 0.4), message_s=0.3),
    Run(
        "rank 3 is late by 15 ms in every step", 4, 3, tuple(range(6)), delay_s=0.015, message_s=0.2
    ),
    Run("rank 1 of two is late in the last step", 2, 1, (3,), (12.0,), num_steps=4),
    Run("rank 5 of six is late in step 2 alone", 6, 5, (2,), (0.0, 900.0, -900.0)),
    Run(
        "rank 0 of two is late in step 0 alone, by half a second",
        2,
        0,
        (0,),
        (9.0,),
        delay_s=0.5,
        num_steps=3,
    ),
    Run("rank 1 is late in all steps but the first", 3, 1, (1, 2, 3, 4, 5)),
]


def make_args(case: Run) -> tuple[list[list[tuple[float, float]]]]:
    """What the ranks have noted: noise of up to 2 ms, and a message of another length each step."""
    noise = random.Random(case.what)
    times: list[list[tuple[float, float]]] = [[] for _ in range(case.ranks)]
    begin = 100.0
    for step in range(case.num_steps):
        compute_s = 0.25 + 0.1 * (step % 3)  # the same on all ranks: steps are not equally long
        entry_times = [begin + compute_s + noise.uniform(0, 0.002) for _ in times]
        if case.rank is not None and step in case.steps:
            entry_times[case.rank] += case.delay_s
        begin = max(entry_times) + case.message_s * (1 + step % 2)
        for rank, own in enumerate(times):
            clock = case.clocks[rank // 2]
            own.append((entry_times[rank] + clock, begin + noise.uniform(0, 0.0005) + clock))
    return (times,)


def describe_waits(case: Run) -> str:
    """How long the ranks have waited in the step that shows it best, in milliseconds."""
    step = case.steps[0] if case.steps else 0
    [times] = make_args(case)
    wait_texts = [f"{1000 * (own[step][1] - own[step][0]):.0f}" for own in times]
    return f"in step {step}, ranks 0 to {len(wait_texts) - 1} waited {', '.join(wait_texts)} ms"


def random_args(rng: random.Random) -> tuple[list[list[tuple[float, float]]]]:
    """A few steps in which ranks may also be early; in each, one rank is late or nobody is."""
    times: list[list[tuple[float, float]]] = [[] for _ in range(rng.randint(2, 4))]
    late = rng.randrange(len(times))
    for step in range(rng.randint(2, 4)):
        waits_ms = [rng.choice([15, 20, 60]) for _ in times]
        if rng.random() < 0.5:
            waits_ms[late] = 2
        else:
            for rank in rng.sample(range(len(times)), 2):
                waits_ms[rank] = rng.choice([2, 5])
        for rank, own in enumerate(times):
            left = step + 1.0 + 500 * (rank // 2)  # the second host's clock is ahead
            own.append((left - waits_ms[rank] / 1000, left))
    return (times,)


OWN_WAIT, IS_LATE = "left - entered for", "second - shortest >= 0.01"


CHECK = SingleProcessCheck(
    cases=CASES,
    make_args=make_args,
    random_args=random_args,
    call_text="find_the_straggler(times of {case.ranks} ranks, {case.num_steps} steps each)",
    compare={
        "form": Comparison(
            "Which of your lines makes the pair of a rank and a word?",
            required='a pair such as (2, "sometimes"), or None',
        ),
        "rank": Comparison(
            "Write down how long each rank has waited in this step. Who does not wait, because "
            "all others wait for it?",
            required=lambda obs: f"rank: {obs.expected}; {describe_waits(obs.case)}",
        ),
        "when": Comparison(
            "List the steps in which this rank is late. Which of the three words fits the list?",
            required=lambda obs: (
                f"{obs.expected}: late in step {', '.join(map(str, obs.case.steps))} of "
                f"{obs.case.num_steps}"
            ),
        ),
    },
    mistakes={
        "This rank waits longest, so it came first. Whom does it wait for?": [
            edit("shortest, second = sorted(of_all)[:2]", "second, shortest = sorted(of_all)[-2:]")
            + edit(IS_LATE, "shortest - second >= 0.01"),
            edit("of_all.index(shortest)", "of_all.index(max(of_all))"),
        ],
        "Two hosts have two clocks. Does it mean anything which of their times is later?": [
            edit(OWN_WAIT, "-entered for"),
            edit(OWN_WAIT, "-left for"),
        ],
        "The time from one all-reduce to the next is the same on all ranks: whoever waits is late "
        "for the next one, too. Which part of it differs?": body("""
            took = [own[-1][0] - own[0][0] for own in times]
            return took.index(max(took)), "always"
        """),
        "All ranks wait while the message is on its way. How does a rank that is late differ from "
        "the others, in the same step?": edit(IS_LATE, "shortest < 0.01"),
        "Only step 0 was looked at. In which steps is it late?": edit(
            "if second", "if step == 0 and second"
        ),
        "Once in a while is not always. In how many steps is this rank late?": edit(
            "len(steps) == len(times[0])", "steps"
        ),
        "Late in step 0 and in others is not late in step 0 alone.": edit(
            "steps == [0]", "steps[0] == 0"
        ),
        "Late in one step is not late in the first. Which step is it?": edit(
            "steps == [0]", "len(steps) == 1"
        ),
        "The mean over all steps hides the few that are slow. When does each rank wait?": body("""
            mean = [sum(left - entered for entered, left in own) / len(own) for own in times]
            shortest, second = sorted(mean)[:2]
            if second - shortest < 0.01:
                return None
            return mean.index(shortest), "always"
        """),
        "The first step was left out. Which word does it decide about?": edit(
            "    if not steps:", "    steps = [one for one in steps if one]\n    if not steps:"
        ),
        "Somebody is late, and None came back. By how much does the shortest wait differ from the "
        "second shortest?": Pattern(lambda obs: obs.value is None, "rank"),
        "Nobody is late here. Is there always a shortest wait, and when does it mean "
        "something?": Pattern(lambda obs: obs.expected is None, "rank"),
    },
    unchanged_hint="Which line changes the lists of the caller?",
    errors={
        "not enough values": "How many numbers does this line unpack? There may be two ranks.",
        "out of range": "Count in which order ranks and steps stand in `times`.",
    },
    on_pass="who is late, and when, in 11 runs of 2 to 6 ranks, on clocks that are hours apart",
)
