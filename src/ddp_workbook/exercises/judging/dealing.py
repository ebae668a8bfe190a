"""Samples dealt to ranks: what the checks of my_indices and resume_indices have in common."""

from itertools import chain, zip_longest

from ddp_workbook.exercises.judging.check import Look, Seen, When, edit
from ddp_workbook.exercises.judging.same import is_index, kind, same
from ddp_workbook.exercises.judging.values import in_words


def type_of(value: object) -> str:
    """ "a list of int", "a list with a tensor in it", "None", as far as a reader's lists go."""
    if not isinstance(value, list | tuple):
        return kind(value)
    others = [kind(one) for one in value if not is_index(one)]
    return f"a list with {others[0]} in it" if others else "a list of int"


def received(seen: Seen) -> list[list[int]]:
    """The list that each rank returned."""
    return [[*one.value] for one in seen.everyone]


def required(seen: Seen) -> list[list[int]]:
    """The right list of each rank."""
    return [one.right for one in seen.everyone]


def together(lists: list[list[int]]) -> list[int]:
    """The samples of rank 0, then those of rank 1, and so on."""
    return list(chain(*lists))


def in_turn(lists: list[list[int]]) -> list[int]:
    """The samples in the order in which they are dealt: the first of each rank, then the second."""
    return [sample for row in zip_longest(*lists) for sample in row if sample is not None]


def all_came(seen: Seen) -> str:
    """What came back, a line for each rank."""
    return "\n".join(f"rank {one.rank}: {in_words(one.value)}" for one in seen.everyone)


def all_right(seen: Seen) -> str:
    """The right lists, a line for each rank."""
    return "\n".join(f"rank {one.rank}: {in_words(one.right)}" for one in seen.everyone)


A_LIST_OF_INT = Look(
    of=lambda seen: seen.actual if seen.actual is None else type_of(seen.actual),
    right="a list of int",
    otherwise="Which of your lines makes a list of plain numbers?",
    actual=lambda seen: f"on rank {seen.rank}: {in_words(seen.actual)}, {type_of(seen.actual)}",
    required="a list of int",
)
WRONG_ORDERS = {  # edits of both solutions
    "This is the order of epoch 0. What makes it the order of another epoch?": edit(
        "seed + epoch", "seed"
    ),
    "This is the order for seed 0. What is seed for?": edit("seed + epoch", "epoch"),
    "Is the generator seeded?": edit(".manual_seed(seed + epoch)", ""),
    "The generator is seeded for epoch 0 and then goes on drawing. With what does the task seed "
    "it?": edit(
        "seed + epoch",
        "seed",
        "torch.randperm(n, generator=generator)",
        "[torch.randperm(n, generator=generator) for _ in range(epoch + 1)][-1]",
    ),
    "Each rank has its own order. Does its seed contain something that differs between ranks?": (
        edit("seed + epoch", "seed + epoch + rank")
    ),
}
CONDITIONS = {  # of lists of int
    "Each rank has a block of neighbours. When you deal cards, which player gets the second one?": (
        When(lambda seen: together(received(seen)) == in_turn(required(seen)))
    ),
    "The same call gives other samples the next time. How do all ranks get the same order?": When(
        lambda seen: not all(same(seen.actual, one.actual) for one in seen.again)
    ),
    "The samples are 0 to n - 1. Where do the other numbers come from?": When(
        lambda seen: not {*together(received(seen))}.issubset(range(seen.case.n))
    ),
    "Each rank has the right samples, in another order. In which order are they dealt?": When(
        lambda seen: [*map(sorted, received(seen))] == [*map(sorted, required(seen))]
    ),
    "Each list is right, but on another rank. Which rank gets the first sample that is dealt?": (
        When(lambda seen: sorted(received(seen)) == sorted(required(seen)))
    ),
    "These are the right samples, in another order. Which of your lines makes the order, and does "
    "the task make it so?": When(
        lambda seen: sorted(together(received(seen))) == sorted(together(required(seen)))
    ),
}
