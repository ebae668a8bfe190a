"""Samples dealt to ranks: values and messages for the checks of the samplers' exercises."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch

from ddp_workbook.exercises.judging.check import Look, Seen, When
from ddp_workbook.exercises.judging.same import is_index, kind, same
from ddp_workbook.exercises.judging.values import in_words


@lru_cache
def permutation(n: int, seed: int, times: int) -> tuple[int, ...]:
    """The result of the `times`-th randperm(n) with a generator of this seed."""
    generator = torch.Generator().manual_seed(seed)
    return tuple([torch.randperm(n, generator=generator) for _ in range(times)][-1].tolist())


@dataclass(frozen=True, kw_only=True)
class Deal:
    """A case: the samples of an epoch, and the ranks that get them."""

    n: int
    size: int
    epoch: int
    seed: int

    def order_by(self, seed: int, times: int = 1) -> list[int]:
        """The epoch's order if the generator had this seed and had drawn this many times."""
        return list(permutation(self.n, seed, times))

    def cards(self, order: list[int]) -> list[int]:
        """The part of an order that is dealt."""
        return order

    @property
    def order(self) -> list[int]:
        """The epoch's order."""
        return self.order_by(self.seed + self.epoch)

    @property
    def right(self) -> list[int]:
        """The samples that are dealt to all ranks together."""
        return self.cards(self.order)


def dealt(cards: Callable[[Deal], list[int]]) -> Callable[[Deal, int], list[int]]:
    """A mistake: the rank's share of these samples."""
    return lambda case, rank: cards(case)[rank :: case.size]


def one_of(ways: Callable[..., list]) -> When:
    """Holds if one of the ways, the same on all ranks, explains every rank's list."""

    def holds(seen: Seen) -> bool:
        found = [[same(o.value, way) for way in ways(o.case, o.rank)] for o in seen.everyone]
        return any(map(all, zip(*found, strict=True)))

    return When(holds)


def in_blocks(case: Deal, rank: int) -> list[list[int]]:
    """A rank's block, cut in three ways: last ones shorter, nearly equal, last one longer."""
    some, size = case.right, case.size
    long, short = -(-len(some) // size), len(some) // size
    places = torch.arange(len(some)).tensor_split(size)[rank].tolist()
    return [
        some[rank * long :][:long],
        [some[place] for place in places],
        some[rank * short :] if rank == size - 1 else some[rank * short :][:short],
    ]


def together(seen: Seen) -> list[int]:
    """The samples that all ranks got in this call."""
    return [sample for one in seen.everyone for sample in one.value]


def lengths(seen: Seen) -> tuple[list[int], list[int]]:
    """How many samples each rank got, and how many it should get."""
    return [len(one.value) for one in seen.everyone], [len(one.right) for one in seen.everyone]


def same_samples(seen: Seen) -> bool:
    """Whether each rank has the right samples, in whatever order."""
    return all(sorted(one.value) == sorted(one.right) for one in seen.everyone)


def all_came(seen: Seen) -> str:
    """What came back, a line for each rank."""
    return "\n".join(f"rank {one.rank}: {in_words(one.value)}" for one in seen.everyone)


def all_right(seen: Seen) -> str:
    """The right values, a line for each rank."""
    return "\n".join(f"rank {one.rank}: {in_words(one.right)}" for one in seen.everyone)


def type_of(value: object) -> str:
    """ "a list of int", "a list with a tensor in it", "None", as far as a reader's lists go."""
    if not isinstance(value, list | tuple):
        return kind(value)
    others = [kind(one) for one in value if not is_index(one)]
    return f"a list with {others[0]} in it" if others else "a list of int"


A_LIST_OF_INT = Look(
    of=lambda seen: type_of(seen.came),
    right="a list of int",
    mistakes={"Does the function return its list, on every path?": "None"},
    otherwise="Which of your lines makes a list of plain numbers?",
    came=lambda seen: f"on rank {seen.rank}: {in_words(seen.came)}, {seen.value}",
    required="a list of int",
)
MISTAKES = {  # with any Deal
    "The same call gives other samples the next time. How do all ranks get the same order?": When(
        lambda seen: not all(same(seen.came, one.came) for one in seen.again)
    ),
    "This is the order of epoch 0. What makes it the order of another epoch?": dealt(
        lambda case: case.cards(case.order_by(case.seed))
    ),
    "This is the order for seed 0. What is seed for?": dealt(
        lambda case: case.cards(case.order_by(case.epoch))
    ),
    "Is the generator seeded?": dealt(
        lambda case: case.cards(case.order_by(torch.Generator().initial_seed()))
    ),
    "The generator is seeded for epoch 0 and then goes on drawing. With what does the task seed "
    "it?": dealt(lambda case: case.cards(case.order_by(case.seed, case.epoch + 1))),
    "Each rank has its own order. Does its seed contain something that differs between ranks?": (
        lambda case, rank: case.cards(case.order_by(case.seed + case.epoch + rank))[
            rank :: case.size
        ]
    ),
    "All ranks get the same samples. Where does the rank come in?": lambda case: case.right,
    "Each rank has a block of neighbours. When you deal cards, which player gets the second one?": (
        one_of(in_blocks)
    ),
}
UNEXPLAINED = {  # after all others
    "The samples are 0 to n - 1. Where do the other numbers come from?": When(
        lambda seen: set(together(seen)) - set(range(seen.case.n))
    ),
    "Each rank has the right samples, in another order. In which order are they dealt?": When(
        same_samples
    ),
}
