"""The samples that a rank gets in an epoch: those that torch's DistributedSampler gives it.

1. The epoch's order of the n samples, on all ranks the same: 0 to n - 1; or, with `shuffle`, what
   torch.randperm makes of n with a torch.Generator that is seeded with seed + epoch.
2. All ranks get equally many. If n is no multiple of world_size, the order is made longer: it goes
   on from its own start, round and round if need be, up to the next multiple. With `drop_last` its
   end is cut off instead, down to the multiple below, which can be none at all.
3. They are dealt like cards: the order's first sample to rank 0, the second to rank 1, and so on,
   and after the last rank to rank 0 again.

n can be 0: every rank gets an empty list. You need no process group, and no DistributedSampler:
your own lines do what it does.
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from torch.utils.data import DistributedSampler

from ddp_workbook.exercises import Attempt, NotYet, attempt_alone
from ddp_workbook.exercises.judging.dealing_before import (
    Lists,
    compare_type,
    dealt,
    in_blocks,
    in_text,
    shuffled,
)

HINTS = [
    "Three questions, one after the other: in which order do the samples come, how many are dealt "
    "in all, and which of those come to this rank?",
    "With n = 1 and 4 ranks four are dealt. Which sample is at place 0 of the order, and which at "
    "1, 2 and 3? At place n and behind it, the remainder of a division tells.",
    "manual_seed of a torch.Generator returns it, and randperm takes it as generator=. For each "
    "rank n / world_size, rounded down or up. range can begin anywhere, and take every k-th.",
]
FOR_ERRORS = {
    "process group": "There is no group. Which arguments say who asks, and among how many?",
    "by zero": "n can be 0, or smaller than world_size. What do you divide by then?",
    "randperm()": "randperm wants n, and generator=, a torch.Generator. What does it get here?",
    "out of range": "How long is the list, and how far do you read? Think of n = 0, too.",
    "float": "Half a sample cannot be dealt. What does / give?",
    "list": "Which of your names is a list here, and which a range, a tensor or a number?",
}
BY_CHANCE = "The same call once more gives others. How do all ranks come to the same order?"
OF_ITS_OWN = "Each rank has an order of its own. Is there something in its seed that only it has?"
OWN_PART = "The samples are dealt first, and shuffled then. Which of the rules comes first?"
TOO_LATE = "The order is made longer first, and shuffled then. Which of the rules comes first?"
OTHER_SHUFFLE = "Another shuffle. Which function makes it, and with what is it seeded?"
OTHER_CARDS = "Write down what is dealt, and its rank under each card. Where is the first mistake?"
BLOCKS = "Each rank has a block of the order. To whom does a dealer give the second card?"
ROUND = "Right so far, but too short still. How often must the order go round?"
END = "The order goes on with its own end. Where does it begin again?"
TOO_SHORT = "More is cut off than need be. By how much is n above a multiple of world_size?"
SIZES = (1, 2, 3, 4, 12)  # world sizes
MORE = list(product((*range(14, -1, -1), 100), (True, False), (False, True)))  # n, two flags

Case = tuple[int, int, int, bool, bool, int]  # n, world_size, epoch, shuffle, drop_last, seed


def my_indices(
    n: int,
    rank: int,
    world_size: int,
    epoch: int = 0,
    shuffle: bool = True,
    drop_last: bool = False,
    seed: int = 0,
) -> list[int]:
    """This rank's samples, of 0 to n - 1, in the order in which it comes to them."""
    ### BEGIN SOLUTION
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)  # the same on all ranks
        order = torch.randperm(n, generator=generator).tolist()
    each = n // world_size if drop_last else -(-n // world_size)  # rounded down, or up
    return [order[place % n] for place in range(rank, each * world_size, world_size)]
    ### END SOLUTION


def cases_of(size: int) -> list[Case]:
    """One rule after the other, without shuffling at first; then what else there is."""
    even = size * max(3, 8 // size)  # 8 to 36 samples
    lengths = (even, even + 1, even + size - 1, min(size - 1, 1))
    rules = [(n, size, 0, False, last, 0) for last in (False, True) for n in lengths]
    rules += [(even, size, epoch, True, False, seed) for seed in (0, 5) for epoch in (0, 2)]
    rules += [(even + 1, size, 2, True, last, 5) for last in (False, True)]
    return rules + [(n, size, 3, shuffle, drop_last, 10) for n, shuffle, drop_last in MORE]


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Compare with DistributedSampler; 4 ranks first, for they tell most in few numbers."""
    ordered = sorted(sizes, key=lambda size: (size == 1, size > 4, -size))
    cases = [case for size in ordered for case in cases_of(size)]
    attempt_alone(attempt, compare_cases, case=cases)
    return (
        "every rank gets what DistributedSampler gives it, for 0 to 14 and more samples, at "
        "world sizes 1 to 4 and 12, with and without shuffle and drop_last"
    )


def compare_cases(my_indices: Callable, cases: list[Case]) -> None:
    """In the process of the attempt: call it for every rank of each case."""
    right = [by_sampler(*case) for case in cases]
    DistributedSampler.__init__ = refuse  # in this process, which nobody else uses
    for case, wanted in zip(cases, right, strict=True):
        called, lists = ask(my_indices, case)
        if lists != wanted:
            again = ask(my_indices, case)[1]
            look = thought(lists, wanted, *case) if again == lists else BY_CHANCE
            raise NotYet(called, in_text(lists), in_text(wanted), look)


def by_sampler(n: int, size: int, epoch: int, shuffle: bool, drop_last: bool, seed: int) -> Lists:
    """What DistributedSampler gives to each rank."""
    every, options = range(size), (shuffle, seed, drop_last)
    samplers = [DistributedSampler(range(n), size, rank, *options) for rank in every]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    return list(map(list, samplers))


def refuse(*_: Any, **__: Any) -> None:
    """In place of DistributedSampler's own __init__."""
    look = "Which of the task's three rules does it follow for you?"
    raise NotYet("my_indices", "a DistributedSampler is asked", "lines that do what it does", look)


def ask(my_indices: Callable, case: Case) -> tuple[str, Lists]:
    """The call in words, and what it returns on each rank; NotYet if it is no list of int."""
    n, size, *options = case
    words = "epoch={}, shuffle={}, drop_last={}, seed={}".format(*options)
    called = f"my_indices({n}, rank, {size}, {words})"
    if options == [0, True, False, 0]:
        called, options = f"my_indices({n}, rank, {size}), so that {words}", []
    lists = []
    for rank in range(size):
        lists.append(my_indices(n, rank, size, *options))
        compare_type(called, rank, lists[-1])
    return called, lists


def thought(lists: Lists, wanted: Lists, n: int, size: int, *options: Any) -> str:
    """The thought behind wrong lists."""
    epoch, shuffle, drop_last, seed = options
    for why, order in orders(n, epoch, shuffle, seed):
        for part, some in cards(order, size, drop_last):
            if lists == dealt(some, size):
                return f"{why} {part}".strip()
            if lists in in_blocks(some, size):
                return f"{why} {BLOCKS}".strip()
    if strange := {sample for own in lists for sample in own} - set(range(n)):
        return f"{n} samples, and none of them is {min(strange)}. Where does it come from?"
    if size > 1 and all(own == lists[0] for own in lists):
        return "All ranks get the same. Where does the rank come in?"
    if all(own == right[: len(own)] for own, right in zip(lists, wanted, strict=True)):
        return ROUND
    if lengths := {len(own) for own in lists} - {len(wanted[0])}:
        return f"Samples on a rank: {min(lengths)}. Does every rank get as many as it must?"
    if size > 1 and [*map(sorted, lists)] == [*map(sorted, wanted)]:
        return "Each rank has the right samples. In which order does it come to them?"
    if not shuffle:
        return OTHER_CARDS
    late = [place % n for place in shuffled(size * len(wanted[0]), seed + epoch)]
    by_rank = [shuffled(n, seed + epoch + rank) for rank in range(size)]
    found = {
        TOO_LATE: lists == dealt(late, size),
        OF_ITS_OWN: all(
            own == dealt(next(cards(order, size, drop_last))[1], size)[rank]
            for rank, (own, order) in enumerate(zip(lists, by_rank, strict=True))
        ),
        OWN_PART: size > 1 and [*map(sorted, lists)] == [*map(sorted, dealt([*range(n)], size))],
    }
    return next((look for look, fits in found.items() if fits), OTHER_SHUFFLE)


def orders(n: int, epoch: int, shuffle: bool, seed: int) -> Iterator[tuple[str, list[int]]]:
    """The right order, then others, each with the thought behind it."""
    plain, right = list(range(n)), shuffled(n, seed + epoch)
    yield "", right if shuffle else plain
    if shuffle:
        yield "It is not shuffled, and shuffle is True.", plain
        yield "This is the order of epoch 0. What makes it another one?", shuffled(n, seed)
        yield "This is the order for seed 0. What is seed for?", shuffled(n, epoch)
    else:
        yield "It is shuffled, and shuffle is False.", right


def cards(order: list[int], size: int, drop_last: bool) -> Iterator[tuple[str, list[int]]]:
    """What is dealt of an order: the right cards, then others with the thought behind them."""
    n, down, up = len(order), len(order) // size * size, -(-len(order) // size) * size
    longer, more = [order[place % n] for place in range(up)], up - n
    yield "", longer[:down] if drop_last else longer
    if drop_last:
        yield "Not all ranks get equally many. What does drop_last do to the order?", order
        yield "drop_last is True. Is the order made longer then?", longer
        yield "The order has lost its beginning, not its end.", order[n - down :]
        yield TOO_SHORT, order[: max(0, down - size)]
        yield TOO_SHORT, []
    else:
        yield "Not all ranks get equally many. What becomes of the order before?", order
        yield "drop_last is False, and yet samples are left out.", order[:down]
        yield ROUND, order + order[:more]
        yield END, order + order[n - more :]
        yield END, order + order[::-1][:more]
        yield END, order + order[-1:] * more
        yield "Only the first sample comes again. Which follows on it?", order + order[:1] * more
        yield "Samples 0, 1 and so on come again. Does the order begin so?", [*order, *range(more)]
        yield "More is added than need be. How many are missing?", order + order[:size]
