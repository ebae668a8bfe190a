"""Fix the loop in the cell: it runs without an error, but trains on the wrong samples.

All ranks call the function with the same arguments. It returns what this rank has trained on: a
list for each epoch, with the samples in their order. dataset[i] is the number i, so you see which
sample is which; forward, backward and step are left out. It should do this:

- In every epoch, including the first, the whole data set is shuffled in a new order and then dealt
  to the ranks, so a rank's samples change from epoch to epoch.
- Every sample goes to some rank, and each rank gets len(dataset) / world_size samples, rounded up.
  No more samples are repeated than that requires.
- `seed` alone decides all orders: the same call returns the same lists again, and another seed
  gives other lists, whatever random numbers other code has drawn.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.distributed as dist  # noqa: F401 (the cell needs it)
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from ddp_workbook.judging import Comparison, DistributedCheck, Observation, Pattern, in_words

MINUTES = 10
HINTS = [
    "Change one word, run the cell, and read what came back. Are the numbers in order? Is a number "
    "on two ranks, or on none? Is the second epoch different from the first?",
    "Three things are wrong. Two are arguments of the sampler: does it shuffle, and do all ranks "
    "deal from the same order? The third is a call that is missing.",
    "A sampler makes the order from its seed and its epoch. The seed must be the same on all "
    "ranks, and the sampler must know the epoch before the loader asks it for the order.",
]


def shuffled_every_epoch(
    dataset: Dataset, epochs: int, batch_size: int, seed: int
) -> list[list[int]]:
    """The samples that this rank trains on in each epoch, `batch_size` at a time."""
    ### BEGIN SOLUTION
    sampler = DistributedSampler(dataset, seed=seed)  # shuffles; all ranks deal from one order
    loader = DataLoader(dataset, batch_size, sampler=sampler)
    trained_on = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)  # before the loader asks it for the order
        trained_on.append([])
        for samples in loader:
            trained_on[epoch] += samples.tolist()
    return trained_on
    ### GIVEN
    # # TODO: this loop runs, but breaks the rules of the task; find out why, and fix it
    # sampler = DistributedSampler(dataset, shuffle=False, seed=seed + dist.get_rank())
    # loader = DataLoader(dataset, batch_size, sampler=sampler)
    # trained_on = []
    # for epoch in range(epochs):
    #     trained_on.append([])
    #     for samples in loader:
    #         trained_on[epoch] += samples.tolist()
    # return trained_on
    ### END SOLUTION


class Training(NamedTuple):
    """Three runs: with this seed, with it again, and with the next one."""

    n: int
    epochs: int
    batch_size: int
    seed: int


NO_EPOCH = -1


def call_three_times(function: Any, data: range, epochs: int, batch_size: int, seed: int) -> list:
    """In a rank: what comes back from the three runs."""
    torch.rand(1)  # a state of torch's own generator that no seed leads to
    return [function(data, epochs, batch_size, run_seed) for run_seed in (seed, seed, seed + 1)]


def samples_by_rank(obs: Observation, epoch: int, run: int = 0) -> list[list[int]]:
    """What each rank trained on in an epoch."""
    return [rank_obs.actual[run][epoch] for rank_obs in obs.all_ranks]


def in_text(obs: Observation, epoch: int, run: int = 0) -> str:
    """A line for each rank."""
    ranks = enumerate(samples_by_rank(obs, epoch, run))
    return "\n".join([f"epoch {epoch}:", *(f"rank {rank}: {in_words(own)}" for rank, own in ranks)])


def share(obs: Observation) -> int:
    """How many samples a rank must get."""
    return -(-obs.case.n // obs.size)


def first_epoch(wrong: Callable[[Observation, int], Any]) -> Callable[[Observation], int]:
    """The first epoch that is wrong."""
    return lambda obs: next((e for e in range(obs.case.epochs) if wrong(obs, e)), NO_EPOCH)


def is_unfair(obs: Observation, epoch: int) -> bool:
    """Whether a sample is missing, or a rank has more or less than its share."""
    ranks = samples_by_rank(obs, epoch)
    is_complete = set().union(*ranks) == {*range(obs.case.n)}
    return not is_complete or {*map(len, ranks)} != {share(obs)}


def is_ordered(obs: Observation, epoch: int) -> bool:
    """Whether neighbours have stayed neighbours."""
    steps = [b - a for own in samples_by_rank(obs, epoch) for a, b in pairwise(own)]
    return max(map(steps.count, steps)) > 0.7 * len(steps)


def has_same_parts(obs: Observation, epoch: int) -> bool:
    """Whether every rank has the samples that it had in epoch 0."""
    parts = [[*map(set, samples_by_rank(obs, number))] for number in (0, epoch)]
    return epoch > 0 and obs.size > 1 and parts[0] == parts[1]


def is_old(obs: Observation, epoch: int) -> bool:
    """Whether there is no new order; of a few samples only one order is asked for."""
    is_repeat = samples_by_rank(obs, epoch) in [
        samples_by_rank(obs, earlier) for earlier in range(epoch)
    ]
    return obs.case.n > 9 and (is_repeat or is_ordered(obs, epoch) or has_same_parts(obs, epoch))


def same_with_another_seed(obs: Observation, epoch: int) -> bool:
    """Whether the next seed gives the same order; of a few samples it may."""
    return obs.case.n > 9 and samples_by_rank(obs, epoch) == samples_by_rank(obs, epoch, 2)


def in_both_runs(label: str, run: int) -> Callable[[Observation], str]:
    """The epoch that is wrong, in the first run and in another one."""
    return lambda obs: f"{in_text(obs, obs.value)}\n{label}, {in_text(obs, obs.value, run)}"


def missing(obs: Observation) -> list[int]:
    """Samples on no rank, in the epoch that is wrong."""
    return sorted({*range(obs.case.n)}.difference(*samples_by_rank(obs, obs.value)))


def lengths(obs: Observation) -> list[int]:
    """How many samples the ranks have in the epoch that is wrong, from the fewest to the most."""
    return sorted(map(len, samples_by_rank(obs, obs.value)))


def are_alike(obs: Observation) -> bool:
    """Whether all ranks have the same samples in the epoch that is wrong."""
    parts = [*map(sorted, samples_by_rank(obs, obs.value))]
    return obs.size > 1 and parts == parts[:1] * obs.size


CHECK = DistributedCheck(
    # no share of 23 is a multiple of 5; 24 divides by all; 3 are fewer than four ranks
    cases=lambda size: [Training(23, 4, 5, 5), Training(24, 4, 6, 0), Training(3, 2, 2, 8)],
    make_args=lambda case: (range(case.n), case.epochs, case.batch_size, case.seed),
    caller=call_three_times,
    call_text="{call}, where dataset has {case.n} samples",
    compare={
        "form": Comparison(
            "What did the given loop return? Is it still a list of int for each epoch?",
            select=lambda obs: obs.actual[0],
        ),
        "epochs": Comparison(
            "What did the given loop return? Do all epochs run?",
            lambda case: case.epochs,
            lambda obs: len(obs.actual[0]),
        ),
        "shares": Comparison(
            "How many samples does each rank get, and what is added to make the ranks equal?",
            NO_EPOCH,
            select=first_epoch(is_unfair),
            actual=lambda obs: f"{in_text(obs, obs.value)}\non no rank: {in_words(missing(obs))}",
            required=lambda obs: f"all samples, on each rank {share(obs)}",
        ),
        "orders": Comparison(
            "An order comes again. From which two numbers does the sampler make it, and which of "
            "them has changed since the epoch before?",
            NO_EPOCH,
            select=first_epoch(is_old),
            actual=lambda obs: "\n".join(in_text(obs, epoch) for epoch in sorted({0, obs.value})),
            required="in each epoch a new random order of all samples, dealt to the ranks",
        ),
        "same call": Comparison(
            "The same call gives other orders. What else, besides seed, decides them: chance, or "
            "something that is kept from the call before?",
            NO_EPOCH,
            select=first_epoch(
                lambda obs, epoch: samples_by_rank(obs, epoch) != samples_by_rank(obs, epoch, 1)
            ),
            actual=in_both_runs("the same call again", 1),
            required="the same lists from the same call",
        ),
        "other seed": Comparison(
            "Both seeds give the same order in this epoch. Where is seed used, and how are seed "
            "and epoch combined?",
            NO_EPOCH,
            select=first_epoch(same_with_another_seed),
            actual=in_both_runs("with seed + 1", 2),
            required="another order from another seed",
        ),
    },
    mistakes={
        "What drops samples: the sampler, the loader with its last batch, or a loop that does not "
        "run?": Pattern(
            lambda obs: missing(obs) and lengths(obs)[0] < share(obs) >= lengths(obs)[-1], "shares"
        ),
        "All ranks have the same samples. What deals them out, and what tells it the "
        "rank?": Pattern(are_alike, "shares"),
        "Do all ranks deal from the same order, or does each rank make its own?": Pattern(
            missing, "shares"
        ),
        "Neighbours stay neighbours. What should shuffle the samples?": Pattern(
            lambda obs: is_ordered(obs, obs.value), "orders"
        ),
        "A rank's samples are always the same ones. Which comes first, shuffling or "
        "dealing?": Pattern(
            lambda obs: (
                has_same_parts(obs, obs.value)
                and samples_by_rank(obs, obs.value) != samples_by_rank(obs, 0)
            ),
            "orders",
        ),
    },
    on_pass="4 epochs of 23 and 24 samples, each in a new order that seed decides, at 1 to 4 ranks",
)
