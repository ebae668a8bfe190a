"""Deal samples of unequal length to the ranks so that no rank works much longer than others.

costs[i] says how long a rank works on sample i: 0 or more, known beforehand, such as the words of a
text. A rank's total is the sum of the costs of its samples, and all wait for the largest total.

- Each sample, 0 to len(costs) - 1, goes to one rank. Ranks may get unequally many samples, or none:
  there can be fewer samples than ranks, and even no samples at all.
- The largest total is at most 4/3 of the least that is possible with these samples. You need not
  look for the least one: trying out all ways takes too long where samples are many.
- Every rank calls the function for itself, so the same call returns the same lists everywhere and
  always. `costs` stays as it is.

In which order a rank comes to its samples does not matter. You need no process group.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ddp_workbook.exercises import Attempt, NotYet, attempt_alone, in_words

HINTS = [
    "You pack boxes into vans, and all vans are to be equally heavy. Into which van do you put the "
    "next box? And which box do you not want to have left at the end?",
    "Keep a total for each rank, and give samples away one by one. Two choices: which sample is "
    "next, and who gets it.",
    "sorted takes a key, and can sort the numbers of the samples by their costs. Small ones fill "
    "up what large ones have left, so they come last. min of the totals tells whose turn it is.",
]

FOR_ERRORS = {
    "process group": "There is no group. Which argument says how many ranks there are?",
    "by zero": "There can be no samples at all, and all costs can be 0. What do you divide by?",
    "empty": "There can be no samples, or a rank without one. What is taken from nothing here?",
    "out of range": "How many lists are there, how many samples, and which of them do you count?",
}
SIZES = (1, 2, 3, 4)  # world sizes
# By world size: whoever deals the same number to each, or in this order, leaves one rank behind.
TELLING = {
    1: [2, 7, 2, 4],
    2: [3, 1, 3, 1, 4, 3, 13],
    3: [2, 1, 2, 3, 4, 4, 11, 4],
    4: [4, 8, 7, 4, 3, 2, 3, 11, 2],
}
OTHERS = [[], [4], [0, 0, 0], [6, 6], [3, 9, 5], [5] * 9, [0, 7, 0, 0, 7, 1], [*range(1, 10)]]
OTHERS += [[50] + [2] * 40, *(random.Random(n).choices(range(13), k=n) for n in range(1, 11))]

Lists = list[list[int]]  # of every rank


def even_work(costs: list[int], world_size: int) -> list[list[int]]:
    """The samples of each rank, as numbers of `costs`, so that the ranks' totals are near."""
    ### BEGIN SOLUTION
    parts, totals = [[] for _ in range(world_size)], [0] * world_size
    for sample in sorted(range(len(costs)), key=lambda i: -costs[i]):  # small ones level it out
        rank = totals.index(min(totals))  # of equals the first: the same choice on all ranks
        parts[rank].append(sample)
        totals[rank] += costs[sample]
    return parts
    ### END SOLUTION


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Compare the largest total with the least possible; one rank last, for it tells least."""
    ordered = sorted(sizes, reverse=True)
    cases = [(TELLING[size], size) for size in ordered]
    cases += [(costs, size) for size in ordered for costs in OTHERS]
    attempt_alone(attempt, compare_cases, case=cases)
    return "0 to 41 samples, each on one of 1 to 4 ranks, no total above 4/3 of the least possible"


def compare_cases(even_work: Callable, cases: list[tuple[list[int], int]]) -> None:
    """In the process of the attempt: call it twice for each case."""
    for costs, size in cases:
        called = f"even_work({in_words(costs)}, world_size={size})"
        lists, again = (ask(even_work, called, costs, size) for _ in range(2))
        compare_samples(called, lists, costs)
        if again != lists:
            came_back = f"{in_text(lists, costs)}\nand once more:\n{in_text(again, costs)}"
            required = "the same lists, for each rank makes them for itself, as do the others"
            look = "What, besides costs and world_size, do the lists depend on?"
            raise NotYet(called, came_back, required, look)
        compare_totals(called, lists, costs)


def ask(even_work: Callable, called: str, costs: list[int], size: int) -> Lists:
    """A copy of what it returns; NotYet if that is of another type, or if costs has changed."""
    given = costs.copy()
    answer = even_work(given, size)
    compare_type(called, answer, size, len(costs))
    if given != costs:
        came_back = f"the lists, but costs is {in_words(given)} afterwards"
        required = "costs stays as it is, for the caller goes on with it"
        raise NotYet(called, came_back, required, "Which line changes costs, and not a copy of it?")
    return [own.copy() for own in answer]


def compare_type(called: str, answer: Any, size: int, samples: int) -> None:
    """Raise NotYet if it is no list with a list of int for each rank."""
    came_back, look = in_words(answer), "Which of your lines makes the lists, and of what?"
    inner = {type(own).__name__ for own in answer} if type(answer) is list else set()
    kinds = {type(one).__name__ for own in answer for one in own} if inner == {"list"} else set()
    if answer is None:
        look = "Does the function return its lists, on every path?"
    elif type(answer) is not list:
        came_back += f", of type {type(answer).__name__}"
    elif len(answer) == samples and inner == {"int"}:
        look = "Is this a rank for each sample? Asked for is the other way round."
    elif inner - {"list"}:
        came_back += f", with {' and '.join(sorted(inner))} in it"
    elif len(answer) != size:
        came_back += f", of length {len(answer)}"
        look = "Does each rank have its list, and also one that gets no sample?"
    elif kinds - {"int"}:
        came_back += f", with {' and '.join(sorted(kinds))} in a list"
        look = "The numbers of the samples are asked for, nothing more. What do you append?"
    else:
        return
    raise NotYet(called, came_back, f"a list with {size} lists of int, one for each rank", look)


def in_text(lists: Lists, costs: list[int]) -> str:
    """A line for each rank, with its total."""
    totals = [sum(costs[i] for i in own if i in range(len(costs))) for own in lists]
    return "\n".join(f"rank {r}: {in_words(lists[r])}, total {t}" for r, t in enumerate(totals))


def compare_samples(called: str, lists: Lists, costs: list[int]) -> None:
    """Raise NotYet if not each sample is there, once."""
    times, every = Counter(sample for own in lists for sample in own), range(len(costs))
    strange = sorted(set(times) - set(every))
    twice = sorted(sample for sample in times if times[sample] > 1)
    never = [sample for sample in every if not times[sample]]
    alike = lists[0] and lists[0] in lists[1:]
    same_costs = not strange and Counter(costs[i] for i in times.elements()) == Counter(costs)
    looks = {
        "These are the costs themselves. Which samples are they of?": times == Counter(costs),
        f"Samples are 0 to {len(costs) - 1}. What are {in_words(strange)}?": strange,
        "Some samples cost the same. Which of them does index find?": same_costs,
        "Ranks have equal lists. Is it one list, named several times?": alike,
        f"On several ranks, or twice on one: {in_words(twice)}. Which line does that?": twice,
        f"Where have samples {in_words(never)} been left?": never,
    }
    if strange or twice or never:
        look = next(words for words, holds in looks.items() if holds)
        raise NotYet(called, in_text(lists, costs), f"each of {len(costs)} samples, once", look)


def compare_totals(called: str, lists: Lists, costs: list[int]) -> None:
    """Raise NotYet if the largest total is above 4/3 of the least possible."""
    size, longest = len(lists), max(sum(costs[i] for i in own) for own in lists)
    bound = max([-(-sum(costs) // size), *costs])  # quick to see, and nothing is below it
    if 3 * longest > 4 * bound and 3 * longest > 4 * (least := least_possible(costs, size)):
        required = f"no total above {4 * least / 3:.4g}: {least} is possible, 4/3 of it allowed"
        look = next(thoughts(lists, costs))
        raise NotYet(called, in_text(lists, costs), required, look)


def least_possible(costs: list[int], size: int) -> int:
    """The least largest total, from all ways to deal out."""
    ways = {(0,) * size}  # totals of the ranks, sorted, for it does not matter whose is which
    for c in costs:
        ways = {tuple(sorted((*w[:r], w[r] + c, *w[r + 1 :]))) for w in ways for r in range(size)}
    return min(map(max, ways))


def thoughts(lists: Lists, costs: list[int]) -> Iterator[str]:
    """What may lie behind such lists, from the specific to the general."""
    size, plain, totals = len(lists), range(len(costs)), [sum(costs[i] for i in o) for o in lists]
    up, down = (sorted(plain, key=lambda i, sign=sign: sign * costs[i]) for sign in (1, -1))
    if sum(map(bool, totals)) == 1:
        yield "All the work is on one rank. What would make another one the next?"
    if [i for own in lists for i in own] == list(plain):
        yield "Each rank has a run of neighbours. Do neighbours have to stay together?"
    if [*map(sorted, lists)] == [list(plain[rank::size]) for rank in range(size)]:
        yield "They are dealt like cards, in the order in which they come. What of their costs?"
    for order in (down, up[::-1]):
        if lists == [order[rank::size] for rank in range(size)]:
            yield "Sorted, then dealt like cards. In each round, who gets the longest one?"
    for order in (down, up):
        meant = sorted(sorted(order[i] for i in own) for own in lists)
        if meant in (greedy(down, costs, size), greedy(up[::-1], costs, size)):
            yield "Are these the samples' places in costs, or those in a sorted copy of it?"
    for order, words in ((plain, "as they come"), (up, "the shortest first")):
        if sorted(map(sorted, lists)) == greedy(order, costs, size):
            yield f"You give them away {words}. Which ones cannot be levelled out at the end?"
    if max(map(len, lists)) - min(map(len, lists)) < 2:
        yield "All ranks have about equally many samples. Are they equally long?"
    yield f"Which of the samples of rank {totals.index(max(totals))} would be better off elsewhere?"


def greedy(order: Iterable[int], costs: list[int], size: int) -> Lists:
    """The lists, sorted, if each sample in turn goes where least is so far."""
    parts = [[] for _ in range(size)]
    for sample in order:
        min(parts, key=lambda part: sum(costs[i] for i in part)).append(sample)
    return sorted(map(sorted, parts))
