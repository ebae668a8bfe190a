"""Samples dealt to ranks: what the checks of my_indices and resume_indices have in common."""

from itertools import chain, zip_longest

from ddp_workbook.judging.check import edit
from ddp_workbook.judging.comparison import Observation, Pattern
from ddp_workbook.judging.equality import values_equal
from ddp_workbook.judging.values import in_words


def returned_indices(obs: Observation) -> list[list[int]]:
    """The list that each rank returned."""
    return [[*rank_obs.value] for rank_obs in obs.all_ranks]


def expected_indices(obs: Observation) -> list[list[int]]:
    """The right list of each rank."""
    return [rank_obs.expected for rank_obs in obs.all_ranks]


def concatenated(lists: list[list[int]]) -> list[int]:
    """The samples of rank 0, then those of rank 1, and so on."""
    return list(chain(*lists))


def interleaved(lists: list[list[int]]) -> list[int]:
    """The samples in the order in which they are dealt: the first of each rank, then the second."""
    return [sample for row in zip_longest(*lists) for sample in row if sample is not None]


def format_returned(obs: Observation) -> str:
    """What came back, a line for each rank."""
    return "\n".join(
        f"rank {rank_obs.rank}: {in_words(rank_obs.value)}" for rank_obs in obs.all_ranks
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
PATTERNS = {  # of the part "samples", lists of int
    "Each rank has a block of neighbours. When you deal cards, which player gets the second one?": (
        Pattern(
            lambda obs: concatenated(returned_indices(obs)) == interleaved(expected_indices(obs)),
            "samples",
        )
    ),
    "The same call gives other samples the next time. How do all ranks get the same "
    "order?": Pattern(
        lambda obs: not all(values_equal(obs.actual, repeat.actual) for repeat in obs.repeats),
        "samples",
    ),
    "The samples are 0 to n - 1. Where do the other numbers come from?": Pattern(
        lambda obs: not {*concatenated(returned_indices(obs))}.issubset(range(obs.case.n)),
        "samples",
    ),
    "Each rank has the right samples, in another order. In which order are they dealt?": Pattern(
        lambda obs: [*map(sorted, returned_indices(obs))] == [*map(sorted, expected_indices(obs))],
        "samples",
    ),
    "Each list is right, but on another rank. Which rank gets the first sample that is dealt?": (
        Pattern(
            lambda obs: sorted(returned_indices(obs)) == sorted(expected_indices(obs)), "samples"
        )
    ),
    "These are the right samples, in another order. Which of your lines makes the order, and does "
    "the task make it so?": Pattern(
        lambda obs: (
            sorted(concatenated(returned_indices(obs)))
            == sorted(concatenated(expected_indices(obs)))
        ),
        "samples",
    ),
}
