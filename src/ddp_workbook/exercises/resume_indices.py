"""What is left of an epoch for a rank, after the job was stopped in the middle of it.

The epoch's order is the one that all ranks of all runs share: what torch.randperm makes of n, the
number of samples, with a torch.Generator that is seeded with seed + epoch. The job has trained on
the first `done` samples of that order: all ranks together, and all runs of this epoch together, for
it may have been stopped more than once. How many ranks there were then is not known, and `done`
need not be a multiple of any number of ranks.

Now there are world_size ranks. What is left is dealt to them like cards, in the order: its first
sample to rank 0, the second to rank 1, and so on, and after the last rank to rank 0 again. So each
sample that is left comes once, on one rank, and nothing is added to make the ranks equal: some get
one sample more than others, or none. With done == n nothing is left for any rank.

You need no process group and no sampler.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import torch

from ddp_workbook.exercises import Attempt, NotYet, attempt_alone, in_words
from ddp_workbook.exercises.judging.dealing import (
    Lists,
    compare_type,
    dealt,
    in_blocks,
    in_text,
    shuffled,
)

HINTS = [
    "Write down the order of 10 samples and strike out the first 4. Who gets the fifth, now that "
    "there are 3 ranks? Does it matter how many there were before?",
    "The order does not depend on ranks. So make all of it anew, as in the run that was stopped, "
    "and then leave out what was done.",
    "The first sample for rank 0 is at place done of the order. At which place is rank 1's first, "
    "and how many places further is its next?",
]

FOR_ERRORS = {
    "process group": "There is no group. Which arguments say who asks, and among how many?",
    "randperm()": "randperm wants n, and generator=, a torch.Generator. What does it get here?",
    "by zero": "Nothing may be left: n - done can be 0. What do you divide by then?",
    "out of range": "There may be fewer samples left than ranks, or none.",
    "empty": "There may be fewer samples left than ranks, or none.",
}
AGAIN = "This is the whole epoch. What has been trained on before the stop?"
PER_RANK = "Every rank leaves out that many samples of its own. Whose samples does done count?"
AS_BEFORE = "This suits a run that had as many ranks as now. What if it had more, or fewer?"
WHOSE_TURN = "The dealing goes on as if nothing had happened. Who gets the first one that is left?"
BLOCKS = "Each rank has a block of what is left. To whom does a dealer give the second card?"
LONGER = "Some samples are added, so that all ranks get equally many. Do they have to?"
SHORTER = "Some samples are left out, so that all ranks get equally many. Do they have to?"
SORTED = "The right samples are left, by their numbers. What is lost in a set, or in sorting?"
NUMBERS = "Left out are the samples with numbers below done. Are those the ones that are done?"
NO_STRIDE = "Ranks begin at the right places. Whose are the samples behind, one after the other?"
ONE_OFF = "One sample too many is taken as done, or one too few."
OWN_ORDER = "Each rank has the right samples. In which order did the epoch have them?"
NEW_ORDER = "The right samples are left, in another order than the epoch's. What is shuffled anew?"
OTHER_ORDER = "Not the order before the stop. Of how many samples was it, and with what seeded?"
SIZES = (1, 2, 3, 4)  # world sizes after the stop

Case = tuple[int, int, int, int, int]  # n, epoch, seed, done, world_size


def resume_indices(
    n: int, epoch: int, seed: int, done: int, rank: int, world_size: int
) -> list[int]:
    """This rank's samples in the rest of the epoch, of 0 to n - 1, in the epoch's order."""
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()  # as before the stop
    return order[done + rank :: world_size]
    ### END SOLUTION


def cases_of(size: int) -> list[Case]:
    """Two that tell much, then all of at most nine samples, nothing left at first."""
    done = size + 1
    n = max(9, done * size + size + 2)
    cases = [(n, 3, 20, done, size), (n, 0, 0, done, size)]
    return cases + [(n, 2, 7, done, size) for n in range(9, -1, -1) for done in range(n, -1, -1)]


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Compare with the rest of the order, dealt; one rank last, for it tells least."""
    cases = [case for size in sorted(sizes, reverse=True) for case in cases_of(size)]
    attempt_alone(attempt, compare_cases, case=cases)
    return (
        "wherever epochs of 0 to 9 samples stop, and in longer ones, 1 to 4 ranks train once on "
        "each sample that is left, in the epoch's order"
    )


def compare_cases(resume_indices: Callable, cases: list[Case]) -> None:
    """In the process of the attempt: call it for every rank of each case."""
    for n, epoch, seed, done, size in cases:
        order = shuffled(n, seed + epoch)
        called = (
            f"resume_indices({n}, epoch={epoch}, seed={seed}, done={done}, rank, world_size={size})"
            f"\ndone: {in_words(order[:done])}\nleft: {in_words(order[done:])}"
        )
        lists = []
        for rank in range(size):
            lists.append(resume_indices(n, epoch, seed, done, rank, size))
            compare_type(called, rank, lists[-1])
        if lists != (wanted := dealt(order[done:], size)):
            look = thought(lists, n, epoch, seed, done)
            came_back = f"{in_text(lists)}\n{what_became(order, done, lists)}"
            raise NotYet(called, came_back, in_text(wanted), look)


def what_became(order: list[int], done: int, lists: Lists) -> str:
    """Which samples the epoch uses several times and which never, if it goes on so."""
    times = Counter(order[:done] + [sample for own in lists for sample in own])
    twice = [sample for sample in times if times[sample] > 1]
    never = [sample for sample in order if not times[sample]]
    return f"in the whole epoch more than once: {in_words(twice)}, never: {in_words(never)}"


def thought(lists: Lists, n: int, epoch: int, seed: int, done: int) -> str:
    """The thought behind wrong lists."""
    size, given = len(lists), [sample for own in lists for sample in own]
    if done == n:
        return "All samples are done. What is left for a rank then?"
    for why, order in orders(n, epoch, seed):
        for part, found in parts(order, size, done):
            if lists == found:
                return f"{why} {part}".strip()
    if strange := set(given) - set(range(n)):
        return f"The samples are 0 to {n - 1}. Where does {min(strange)} come from?"
    left = shuffled(n, seed + epoch)[done:]
    longer = all(own[: len(r)] == r for own, r in zip(lists, dealt(left, size), strict=True))
    if longer and len({len(own) for own in lists}) == 1:
        return LONGER
    if sorted(given) == sorted(left):
        same = [*map(sorted, lists)] == [*map(sorted, dealt(left, size))]
        return OWN_ORDER if same and size > 1 else NEW_ORDER
    if len(given) == len(left):
        return OTHER_ORDER
    return "Strike out the done ones, and write a rank under each that is left. What differs?"


def orders(n: int, epoch: int, seed: int) -> Iterator[tuple[str, list[int]]]:
    """The right order, then others, each with the thought behind it."""
    yield "", shuffled(n, seed + epoch)
    yield "The order is not shuffled. Which one had the run before the stop?", [*range(n)]
    yield "This is the order of epoch 0. What makes it another one?", shuffled(n, seed)
    yield "This is the order for seed 0. What is seed for?", shuffled(n, epoch)
    yield "Is the generator seeded?", shuffled(n, torch.Generator().initial_seed())


def parts(order: list[int], size: int, done: int) -> Iterator[tuple[str, Lists]]:
    """What the ranks get of an order: the right lists, then others with the thought behind them."""
    n, left, ranks = len(order), order[done:], range(size)
    yield "", dealt(left, size)
    yield PER_RANK, dealt(order[done * size :], size)
    for shares in (dealt(order, size), dealt(order + order[: -n % size], size)):
        yield AGAIN, shares
        yield AS_BEFORE, [own[done // size :] for own in shares]
        yield AS_BEFORE, [own[-(-done // size) :] for own in shares]
    yield "All ranks get the same. Where does the rank come in?", [left] * size
    yield WHOSE_TURN, [[order[i] for i in range(done, n) if i % size == r] for r in ranks]
    yield from ((BLOCKS, blocks) for blocks in in_blocks(left, size))
    yield "These are the samples that are done, not those that are left.", dealt(order[:done], size)
    yield SHORTER, dealt(left[: len(left) // size * size], size)
    yield SORTED, dealt(sorted(left), size)
    yield NUMBERS, dealt([sample for sample in order if sample >= done], size)
    yield NO_STRIDE, [left[rank:] for rank in ranks]
    yield ONE_OFF, dealt(order[done + 1 :], size)
    yield ONE_OFF, dealt(order[max(0, done - 1) :], size)
