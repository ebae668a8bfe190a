"""Divide samples of unequal length, so that no rank works much longer than the others.

costs[i] says how long a rank works on sample i, such as the number of words in a text; it is 0 or
more. A rank's total is the sum of the costs of its samples. All ranks wait for the one with the
largest total. You need no process group.

- Each sample, 0 to len(costs) - 1, goes to one rank. Ranks may get unequal numbers of samples, or
  none: there can be fewer samples than ranks, and even no samples at all. The order within a rank
  does not matter.
- The largest total is at most 4/3 of the largest total in the best possible division. You need not
  find the best division: with many samples, trying all of them takes too long.
- Every rank calls the function in its own process. So the same call must return the same lists
  everywhere and every time. `costs` stays as it is.
"""

import random
from collections import Counter
from functools import cache

from ddp_workbook.judging import (
    Comparison,
    Observation,
    Pattern,
    SingleProcessCheck,
    body,
    edit,
    in_words,
)

MINUTES = 12
HINTS = [
    "You pack boxes into vans, and all vans should be equally heavy. Into which van do you put the "
    "next box? And which box would be the worst one to have left at the end?",
    "Keep a total for each rank, and give samples away one by one. Two choices: which sample is "
    "next, and who gets it.",
    "sorted takes a key, and can sort the numbers of the samples by their costs. Small samples can "
    "fill up what large ones leave uneven: when should they come?",
]


def even_work(costs: list[int], world_size: int) -> list[list[int]]:
    """The samples of each rank, as places in `costs`, so that the ranks' totals are similar."""
    ### BEGIN SOLUTION
    parts, totals = [[] for _ in range(world_size)], [0] * world_size
    for sample in sorted(range(len(costs)), key=lambda i: -costs[i]):  # the small ones even it out
        rank = totals.index(min(totals))  # of equals the first: the same choice on all ranks
        parts[rank].append(sample)
        totals[rank] += costs[sample]
    return parts
    ### END SOLUTION


# By world size: whoever deals the same number to each, or in this order, leaves one rank behind.
TELLING_COSTS = {
    4: [3, 11, 5, 3, 2, 5, 5, 1, 2, 7],
    3: [2, 1, 2, 3, 4, 4, 11, 4],
    2: [3, 1, 3, 1, 4, 3, 13],
    1: [2, 7, 2, 4],
}
EQUAL = ([5] * 16, 16)  # each rank gets one: the best of many random divisions is far from that
MORE_COSTS = [[], [4], [0, 0, 0], [6, 6], [3, 9, 5], [5] * 9, [0, 7, 0, 0, 7, 1], [*range(1, 10)]]
MORE_COSTS += [[3, 1, 1, 3, 1, 1, 0, 1, 1], [50] + [2] * 40, [10**9] * 12]
MORE_COSTS += [random.Random(n).choices(range(13), k=n) for n in range(2, 11, 2)]


def cases() -> list[tuple[list[int], int]]:
    """Costs and world size: the telling ones, twice, then others; many ranks first."""
    telling = [(costs, size) for size, costs in TELLING_COSTS.items()]
    return [
        *telling,
        *telling,
        EQUAL,
        *((costs, size) for size in TELLING_COSTS for costs in MORE_COSTS),
    ]


def totals(costs: list[int], lists: list[list[int]]) -> list[int]:
    """The work of each rank."""
    return [sum(costs[i] for i in own if 0 <= i < len(costs)) for own in lists]


def describe_totals(obs: Observation) -> str:
    """A line for each rank."""
    ranks = enumerate(zip(obs.actual, totals(obs.case[0], obs.actual), strict=True))
    return "\n".join(f"rank {rank}: {in_words(own)}, total {total}" for rank, (own, total) in ranks)


def describe_samples(obs: Observation) -> str:
    """Which samples are given away twice, and which never."""
    times = Counter(obs.value)
    twice = [sample for sample in times if times[sample] > 1]
    never = [sample for sample in obs.expected if sample not in times]
    return f"more than once: {in_words(twice)}, never: {in_words(never)}"


@cache  # every mistake is compared with it
def least_possible(costs: tuple[int, ...], size: int) -> int:
    """The smallest largest total, from all ways to divide the samples."""
    ways = {(0,) * size}  # totals of the ranks, sorted, for it does not matter whose is which
    for c in costs:
        ways = {tuple(sorted((*w[:r], w[r] + c, *w[r + 1 :]))) for w in ways for r in range(size)}
    return min(map(max, ways))


def overlong_lists(obs: Observation) -> list[list[int]]:
    """The ranks' samples, each rank's sorted, if a total is above 4/3 of the least possible."""
    costs, size = obs.case
    longest = max(totals(costs, obs.actual))
    bound = max([-(-sum(costs) // size), *costs])  # cheap, and no division is below it
    wrong = 3 * longest > 4 * bound and 3 * longest > 4 * least_possible(tuple(costs), size)
    return [*map(sorted, obs.actual)] if wrong else []


def describe_limit(obs: Observation) -> str:
    """What is required of the totals, in words."""
    least = least_possible(tuple(obs.case[0]), obs.case[1])
    return f"no total above {4 * least / 3:.4g}: {least} is possible, 4/3 of it allowed"


LOOP = "for sample in sorted(range(len(costs)), key=lambda i: -costs[i]):"


CHECK = SingleProcessCheck(
    cases=cases,
    make_args=lambda case: (list(case[0]), case[1]),
    compare={
        "form": "Each rank's entry is a list of the numbers of its samples, empty if it gets none. "
        "What is here instead?",
        "ranks": Comparison(
            "Each rank's entry is a list of the numbers of its samples, empty if it gets none. How "
            "many ranks are there?",
            lambda case: case[1],
            lambda obs: len(obs.actual),
        ),
        "samples": Comparison(
            "Samples are 0 to len(costs) - 1, each once. Which line makes other numbers, gives a "
            "sample away twice, or leaves some out?",
            lambda case: list(range(len(case[0]))),
            select=lambda obs: sorted(i for own in obs.actual for i in own),
            actual=lambda obs: f"{describe_totals(obs)}\n{describe_samples(obs)}",
            required=lambda obs: f"each of {len(obs.expected)} samples, once",
        ),
        "totals": Comparison(
            "Which samples of the rank with the largest total would be better off elsewhere?",
            [],
            select=overlong_lists,
            actual=describe_totals,
            required=describe_limit,
        ),
        "repeated": Comparison(
            "The same call gives other lists the next time. What, besides costs and world_size, "
            "do they depend on? Like random numbers, hash() of a text differs from process to "
            "process.",
            True,
            select=lambda obs: all(repeat.actual == obs.actual for repeat in obs.repeats),
            actual=lambda obs: "\nand once more:\n".join(map(describe_totals, [obs, *obs.repeats])),
            required="the same lists: each rank computes them in its own process",
        ),
    },
    mistakes={
        "These are the costs themselves. Which samples do they belong to?": edit(
            "append(sample)", "append(costs[sample])"
        ),
        "Some samples cost the same. Which of them does index find?": edit(
            "append(sample)", "append(costs.index(costs[sample]))"
        ),
        "Samples that cost 0 are missing. Which of your lines treats 0 as nothing?": edit(
            "parts[rank].append(sample)", "parts[rank] += [sample] * bool(costs[sample])"
        ),
        "Ranks have equal lists. Is it the same list object several times?": edit(
            "[[] for _ in range(world_size)]", "[[]] * world_size"
        ),
        "They are dealt like cards. In each round, who gets the longest one?": [
            body(f"return [{order}[rank::world_size] for rank in range(world_size)]")
            for order in (
                "list(range(len(costs)))",
                "sorted(range(len(costs)), key=lambda i: -costs[i])",
                "sorted(range(len(costs)), key=lambda i: costs[i])[::-1]",
            )
        ],
        "Are these the samples' places in costs as it was given, or after sorting?": [
            edit(LOOP, f"costs = sorted(costs)\n    {LOOP}"),
            edit(LOOP, f"costs = sorted(costs, reverse=True)\n    {LOOP}"),
        ],
        "Which samples cannot be balanced out at the end, the short ones or the long ones?": [
            edit(LOOP, "for sample in range(len(costs)):"),
            edit(LOOP, "for sample in reversed(range(len(costs))):"),
            edit("-costs[i]", "costs[i]"),
        ],
        "Each rank has a run of neighbours. Do neighbours have to stay together?": Pattern(
            lambda obs: [i for own in obs.actual for i in own] == [*range(len(obs.case[0]))],
            "totals",
        ),
        "All ranks have about equally many samples. Are they equally long?": Pattern(
            lambda obs: max(map(len, obs.actual)) - min(map(len, obs.actual)) < 2, "totals"
        ),
    },
    unchanged_hint="Which line changes costs, and not a copy of it?",
    errors={
        "does not end": "How often does this loop run? There are 262,144 ways to deal 9 samples to "
        "4 ranks.",
        "by zero": "There can be no samples at all, and all costs can be 0. What do you divide by?",
        "empty": "There can be no samples, or a rank without one. What is taken from nothing here?",
        "out of range": "How many lists are there, how many samples, and which of them do you "
        "count?",
    },
    on_pass="0 to 41 samples, each on one of 1 to 4 or 16 ranks, no total above 4/3 of the least "
    "possible",
)
