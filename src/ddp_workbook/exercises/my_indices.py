"""Return the samples of one rank in one epoch, exactly as torch's DistributedSampler gives them.

You need no process group, and must not use DistributedSampler: the exercise is to write what it
does. If n is 0, every rank gets an empty list.

1. The order. Without `shuffle` it is 0, 1, 2 and so on, up to n - 1. With `shuffle` it is the
   result of torch.randperm(n) with a torch.Generator seeded with seed + epoch, the same on all
   ranks.
2. Equal shares. If n is not a multiple of world_size, the order is extended to the next multiple:
   it starts again from its own beginning, several times if necessary. With `drop_last` its end is
   cut off instead, down to the multiple below, which can be 0.
3. The deal. The first sample of that order goes to rank 0, the second to rank 1, and so on; after
   the last rank comes rank 0 again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DistributedSampler

from ddp_workbook.exercises import Alone, Look, NotYet, Seen, When
from ddp_workbook.exercises.judging.dealing import (
    A_LIST_OF_INT,
    MISTAKES,
    UNEXPLAINED,
    Deal,
    all_came,
    all_right,
    dealt,
    lengths,
    permutation,
)

MINUTES = 12
HINTS = [
    "Answer three questions in turn: what is the order of the samples, how many are dealt in all, "
    "and which of those go to this rank?",
    "With n = 1 and 4 ranks, four samples are dealt. Which sample is at place 0 of the extended "
    "order, and which at places 1, 2 and 3? From place n on, a remainder tells you.",
    "manual_seed of a torch.Generator returns the generator. Each rank gets n / world_size "
    "samples, rounded down or up. Which places of the order are rank 0's, and which are rank 1's?",
]


def my_indices(
    n: int,
    rank: int,
    world_size: int,
    epoch: int = 0,
    shuffle: bool = True,
    drop_last: bool = False,
    seed: int = 0,
) -> list[int]:
    """This rank's samples, out of 0 to n - 1, in the order in which it uses them."""
    ### BEGIN SOLUTION
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)  # the same on all ranks
        order = torch.randperm(n, generator=generator).tolist()
    each = n // world_size if drop_last else -(-n // world_size)  # rounded down, or up
    return [order[place % n] for place in range(rank, each * world_size, world_size)]
    ### END SOLUTION


@dataclass(frozen=True, kw_only=True)
class Epoch(Deal):
    """An epoch of a DistributedSampler."""

    shuffle: bool
    drop_last: bool

    def order_by(self, seed: int, times: int = 1) -> list[int]:
        """The epoch's order from a generator with this seed, if it is shuffled at all."""
        return super().order_by(seed, times) if self.shuffle else list(range(self.n))

    def cards(self, order: list[int]) -> list[int]:
        """An order, extended or cut."""
        each = self.n // self.size if self.drop_last else -(-self.n // self.size)
        return (order * self.size)[: each * self.size]

    @property
    def more(self) -> int:
        """How many samples are missing to the next multiple."""
        return -self.n % self.size

    @property
    def options(self) -> tuple:
        """The arguments that have a default."""
        return self.epoch, self.shuffle, self.drop_last, self.seed

    @property
    def in_words(self) -> str:
        """The call."""
        words = "epoch={}, shuffle={}, drop_last={}, seed={}".format(*self.options)
        if self.options == DEFAULTS:
            return f"my_indices({self.n}, rank, {self.size}), so that {words}"
        return f"my_indices({self.n}, rank, {self.size}, {words})"


DEFAULTS = (0, True, False, 0)


def cases() -> list[Epoch]:
    """One rule after the other, without shuffling at first; then few samples, by many flags."""
    found = []
    for size in (4, 3, 2, 1):
        even = size * max(3, 8 // size)  # 8 to 12 samples
        lengths = (even, even + 1, even + size - 1, min(size - 1, 1))
        rules = [(n, 0, False, last, 0) for last in (False, True) for n in lengths]
        rules += [(even, epoch, True, False, seed) for seed in (0, 5) for epoch in (0, 2)]
        rules += [(even + 1, 2, True, last, 5) for last in (False, True)]
        found += [case_of(size, *rule) for rule in rules]
    again = found[8:12]
    flags = [(shuffle, last) for shuffle in (False, True) for last in (False, True)]
    few = [(size, n, *two) for size in (4, 3, 2, 1, 7) for n in (2, 0) for two in flags]
    return [*found, *again, *(case_of(size, n, 3, *two, 10) for size, n, *two in few)]


def case_of(size: int, n: int, epoch: int, shuffle: bool, drop_last: bool, seed: int) -> Epoch:
    """A case."""
    return Epoch(n=n, size=size, epoch=epoch, seed=seed, shuffle=shuffle, drop_last=drop_last)


def arguments(case: Epoch, rank: int) -> tuple:
    """The arguments of a call; from now on no sampler can be made in this process."""
    DistributedSampler.__init__ = refuse
    return (case.n, rank, case.size, *(case.options if case.options != DEFAULTS else ()))


def refuse(*_: Any, **__: Any) -> None:
    """In place of DistributedSampler's own __init__."""
    look = "Which of the task's three rules does it follow for you?"
    raise NotYet("my_indices", "a DistributedSampler is asked", "lines that do what it does", look)


def longer(cards: Callable[[Epoch], list[int]]) -> Callable:
    """A mistake in extending the order."""
    return dealt(lambda case: case.right if case.drop_last else cards(case))


def shorter(cards: Callable[[Epoch], list[int]]) -> Callable:
    """A mistake in cutting the order."""
    return dealt(lambda case: cards(case) if case.drop_last else case.right)


def each_drops_one(case: Epoch, rank: int) -> list[int]:
    """A rank's samples if each rank drops its last one wherever n is no multiple."""
    if case.drop_last and case.more:
        return case.order[rank :: case.size][:-1]
    return case.right[rank :: case.size]


def shuffled_late(case: Epoch) -> list[int]:
    """Extended or cut first, shuffled afterwards."""
    places = permutation(len(case.right), case.seed + case.epoch, 1)
    return [place % case.n for place in places] if case.shuffle else case.right


def own_parts_shuffled(seen: Seen) -> bool:
    """Whether each rank has what it would have without shuffling, in another order."""
    plain = seen.case.cards(list(range(seen.case.n)))
    parts = [sorted(plain[one.rank :: seen.size]) for one in seen.everyone]
    return seen.size > 1 and [sorted(one.value) for one in seen.everyone] == parts


CHECK = Alone(
    cases=cases,
    times=lambda case: case.size,
    given=arguments,
    called=lambda case: case.in_words,
    looks=[
        A_LIST_OF_INT,
        Look(
            right=dealt(lambda case: case.right),
            mistakes={
                **MISTAKES,
                "It is not shuffled, and shuffle is True.": dealt(
                    lambda case: case.cards(list(range(case.n)))
                ),
                "It is shuffled, and shuffle is False.": dealt(
                    lambda case: case.cards(Deal.order_by(case, case.seed + case.epoch))
                ),
                "The order is extended first and shuffled afterwards. Which of the rules comes "
                "first?": dealt(shuffled_late),
                "Not all ranks get equally many. What happens to the order before it is dealt?": (
                    longer(lambda case: case.order)
                ),
                "drop_last is False, and yet samples are left out.": longer(
                    lambda case: case.order[: case.n // case.size * case.size]
                ),
                "Right so far, but still too short. How often must the order be repeated?": longer(
                    lambda case: case.order + case.order[: case.more]
                ),
                "The order continues with its own end. Where should it start again?": longer(
                    lambda case: case.order + case.order[case.n - case.more :]
                ),
                "The order continues backwards. Where should it start again?": longer(
                    lambda case: case.order + case.order[::-1][: case.more]
                ),
                "Only the last sample comes again. Where should the order start again?": longer(
                    lambda case: case.order + case.order[-1:] * case.more
                ),
                "Only the first sample comes again. Which one follows it?": longer(
                    lambda case: case.order + case.order[:1] * case.more
                ),
                "Samples 0, 1 and so on come again. Does the order start with them?": longer(
                    lambda case: case.order + [i % case.n for i in range(case.more)]
                ),
                "More is added than necessary. How many are missing to the next multiple?": longer(
                    lambda case: [
                        case.order[place % case.n]
                        for place in range((case.n // case.size + 1) * case.size if case.n else 0)
                    ]
                ),
                "Not all ranks get equally many. What does drop_last do to the order?": shorter(
                    lambda case: case.order
                ),
                "drop_last is True. Is the order extended then?": shorter(
                    lambda case: (case.order * case.size)[: case.n + case.more]
                ),
                "The order has lost its beginning, not its end.": shorter(
                    lambda case: case.order[case.n % case.size :]
                ),
                "More is cut off than necessary. By how much is n above a multiple of "
                "world_size?": shorter(lambda case: case.order[: -(case.n % case.size)]),
                "Every rank leaves out one. Which ranks had one more than the others?": (
                    each_drops_one
                ),
                **UNEXPLAINED,
                "The samples are dealt first, then shuffled. Which of the rules comes first?": (
                    When(own_parts_shuffled)
                ),
                "Right so far, but too short. How long must the order be?": When(
                    lambda seen: all(o.value == o.right[: len(o.value)] for o in seen.everyone)
                ),
                "Does every rank get as many as it must?": When(
                    lambda seen: lengths(seen)[0] != lengths(seen)[1]
                ),
                "Another shuffle. Which function makes it, and with what is it seeded?": When(
                    lambda seen: seen.case.shuffle
                ),
            },
            otherwise="Write down what is dealt, and under each sample its rank. Where is the "
            "first mistake?",
            came=all_came,
            required=all_right,
        ),
    ],
    errors={
        "process group": "There is no process group. Which arguments give rank and world size?",
        "by zero": "n can be 0, or smaller than world_size. What do you divide by then?",
        "randperm()": "randperm wants n, and generator=, a torch.Generator. What does it get here?",
        "out of range": "How long is the list, and how far do you read? Think of n = 0, too.",
        "float": "Half a sample cannot be dealt. What does / give?",
        "list": "Which of your names is a list here, and which a range, a tensor or a number?",
    },
    proves="every rank gets what DistributedSampler gives it, for 0 to 13 samples, at world sizes "
    "1 to 4 and 7, with and without shuffle and drop_last",
)
