"""Fix the loop in the cell: it runs without an error, but trains on the wrong samples.

All ranks call the function with the same arguments. It returns what this rank has trained on: a
list for each epoch, with the samples in their order. dataset[i] is the number i, so that you see
which sample is which; forward, backward and step are left out. In every epoch, also in the first:

- The whole data set is shuffled in a new order, and then dealt to the ranks. So a rank gets other
  samples than in the epoch before.
- Every sample goes to some rank, and all ranks get len(dataset) / world_size samples, rounded up.
  No more samples come twice than that requires.
- `seed` alone decides all orders: the same call returns the same lists again, and another seed
  gives other lists, whatever random numbers other code has drawn.
- The random numbers of other code stay the same too: leave the state of torch's generator as it
  is. A loader draws a number from it each time a loop over the loader begins, unless you give the
  loader a generator of its own.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.distributed as dist  # noqa: F401 (the cell needs it)
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from ddp_workbook.exercises import Look, OnRanks, Seen, When, in_words
from ddp_workbook.exercises.judging.dealing import type_of

MINUTES = 10
HINTS = [
    "Change one word, run the cell, and read what came back. Are the numbers in order? Is a number "
    "on two ranks, or on none? Is the second epoch different from the first?",
    "Four things are wrong. Two are arguments of the sampler: who shuffles, and do the ranks "
    "deal from the same order? One is an argument that the loader lacks.",
    "A sampler makes the order from its seed and its epoch. The seed must be the same on all "
    "ranks, and the sampler must be told the epoch before the loader asks it for the order.",
]


def shuffled_every_epoch(
    dataset: Dataset, epochs: int, batch_size: int, seed: int
) -> list[list[int]]:
    """The samples that this rank trains on in each epoch, `batch_size` at a time."""
    ### BEGIN SOLUTION
    sampler = DistributedSampler(dataset, seed=seed)  # shuffles; all ranks deal from one order
    loader = DataLoader(dataset, batch_size, sampler=sampler, generator=torch.Generator())
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


NO_EPOCH = -1


class Case(NamedTuple):
    """Three runs: with this seed, with it again, and with the next one."""

    n: int
    epochs: int
    batch_size: int
    seed: int


def run_thrice(function: Any, data: range, epochs: int, batch_size: int, seed: int) -> dict:
    """In a rank: what comes back, and whether torch's own generator was asked."""
    torch.rand(1)  # a state that no seed leads to
    before = torch.get_rng_state()
    runs = [function(data, epochs, batch_size, one) for one in (seed, seed, seed + 1)]
    return {"runs": runs, "drawn": not torch.equal(before, torch.get_rng_state())}


def lists(seen: Seen, epoch: int, run: int = 0) -> list[list[int]]:
    """What all ranks trained on in an epoch."""
    return [one.came["runs"][run][epoch] for one in seen.everyone]


def in_text(seen: Seen, epoch: int, run: int = 0) -> str:
    """A line for each rank."""
    each = enumerate(lists(seen, epoch, run))
    return "\n".join([f"epoch {epoch}:", *(f"rank {rank}: {in_words(own)}" for rank, own in each)])


def share(seen: Seen) -> int:
    """How many samples a rank must get."""
    return -(-seen.case.n // seen.size)


def every(seen: Seen) -> set[int]:
    """The samples of the data set."""
    return set(range(seen.case.n))


def missing(seen: Seen, ranks: list[list[int]]) -> list[int]:
    """Samples on no rank."""
    return sorted(every(seen).difference(*ranks))


def wrong_lists(run: Any, epochs: int) -> str:
    """What is wrong with the type of what a run returned; "" if nothing."""
    if type_of(run) == "a list of int" and run != []:
        return "a list of int"
    if not isinstance(run, list | tuple):
        return type_of(run)
    if inner := [type_of(own) for own in run if type_of(own) != "a list of int"]:
        return f"in which an epoch is {inner[0]}"
    return "" if len(run) == epochs else f"{len(run)} lists"


def unfair_epoch(seen: Seen) -> int:
    """The first epoch in which a sample is missing, or a rank has more or less than its share."""
    for epoch in range(seen.case.epochs):
        ranks = lists(seen, epoch)
        if {len(own) for own in ranks} != {share(seen)} or set().union(*ranks) != every(seen):
            return epoch
    return NO_EPOCH


def at(holds: Callable[[Seen, list[list[int]]], Any]) -> When:
    """Holds for what the ranks have in the epoch that is wrong."""
    return When(lambda seen: holds(seen, lists(seen, seen.value)))


def alike(ranks: list[list[int]]) -> bool:
    """Whether all ranks have the same samples."""
    return len(ranks) > 1 and all(sorted(own) == sorted(ranks[0]) for own in ranks)


def ordered(seen: Seen, epoch: int) -> bool:
    """Whether neighbours have stayed neighbours."""
    steps = [after - sample for own in lists(seen, epoch) for sample, after in pairwise(own)]
    return max(map(steps.count, steps)) > 0.7 * len(steps)


def same_parts(seen: Seen, epoch: int) -> bool:
    """Whether every rank has the samples that it had in epoch 0."""
    parts = [[set(own) for own in lists(seen, one)] for one in (0, epoch)]
    return epoch > 0 and seen.size > 1 and parts[0] == parts[1]


def old_epoch(seen: Seen) -> int:
    """The first epoch without a new order; of a few samples only one order is asked for."""
    for epoch in range(seen.case.epochs if seen.case.n > 9 else 0):
        before = [lists(seen, one) for one in range(epoch)]
        if lists(seen, epoch) in before or ordered(seen, epoch) or same_parts(seen, epoch):
            return epoch
    return NO_EPOCH


def other_again(seen: Seen) -> int:
    """The first epoch in which the same call gives something else the second time."""
    epochs = range(seen.case.epochs)
    return next((one for one in epochs if lists(seen, one) != lists(seen, one, 1)), NO_EPOCH)


def as_seeded(seen: Seen) -> bool:
    """Whether the first run's first order is the one that a sampler makes of this seed."""
    n, seed = seen.case.n, seen.case.seed
    samplers = [DistributedSampler(range(n), seen.size, r, seed=seed) for r in range(seen.size)]
    return lists(seen, 0) == [*map(list, samplers)]


def same_with_another_seed(seen: Seen) -> int:
    """The first epoch that is the same with another seed."""
    epochs = range(seen.case.epochs if seen.case.n > 9 else 0)
    return next((one for one in epochs if lists(seen, one) == lists(seen, one, 2)), NO_EPOCH)


TYPE = Look(
    of=lambda seen: [wrong_lists(run, seen.case.epochs) for run in seen.came["runs"]],
    right=["", "", ""],
    mistakes={
        "Does the function return its lists, on every path?": ["None"] * 3,
        "One list for each epoch. Do all epochs run?": When(lambda s: s.value[0].endswith("lists")),
    },
    otherwise="What did the given loop return? Is it still a list of int for each epoch?",
    came=lambda seen: f"on rank {seen.rank}: {in_words(seen.came['runs'][0])}, {seen.value[0]}",
    required=lambda seen: f"{seen.case.epochs} lists of int, one for each epoch",
)
FAIR = Look(
    of=unfair_epoch,
    right=NO_EPOCH,
    mistakes={
        "These numbers are not in the data set. Where do they come from?": at(
            lambda seen, ranks: set().union(*ranks) - every(seen)
        ),
        "Does the loop over the batches run in this epoch?": at(lambda _, ranks: not any(ranks)),
        "Each rank has all samples. What deals them out?": at(
            lambda seen, ranks: alike(ranks) and share(seen) < len(set(ranks[0])) == seen.case.n
        ),
        "All ranks have the same samples. What tells the sampler which rank it is?": at(
            lambda _, ranks: alike(ranks)
        ),
        "What drops samples: the sampler, or the loader, its last batch?": at(
            lambda seen, ranks: (
                missing(seen, ranks) and min(map(len, ranks)) < share(seen) >= max(map(len, ranks))
            )
        ),
        "Some samples come several times on a rank, and some never. What draws them?": at(
            lambda seen, ranks: missing(seen, ranks) and any(len(set(r)) < len(r) for r in ranks)
        ),
        "Do all ranks deal from the same order, or does each rank make its own?": at(missing),
        "More than its share. Which samples come several times in a list, and why?": at(
            lambda seen, ranks: max(map(len, ranks)) > share(seen)
        ),
    },
    otherwise="Unequally many. Which rank do the others wait for in the last step?",
    came=lambda seen: (
        f"{in_text(seen, seen.value)}\n"
        f"on no rank: {in_words(missing(seen, lists(seen, seen.value)))}"
    ),
    required=lambda seen: f"all samples, on each rank {share(seen)}",
)
NEW = Look(
    of=old_epoch,
    right=NO_EPOCH,
    mistakes={
        "Neighbours stay neighbours. What should shuffle the samples?": When(
            lambda seen: ordered(seen, seen.value)
        ),
        "Only epochs 0 and 1 are alike. When is the order made, and when is set_epoch "
        "called?": When(
            lambda seen: (
                seen.value == 1
                and lists(seen, 1) == lists(seen, 0)
                and lists(seen, 2) != lists(seen, 1)
            )
        ),
        "A rank's samples are always the same ones. Which comes first, shuffling or dealing?": When(
            lambda seen: lists(seen, seen.value) != lists(seen, 0)
        ),
    },
    otherwise="An order comes again. What makes an epoch different from the one before?",
    came=lambda seen: "\n".join(in_text(seen, one) for one in sorted({0, seen.value})),
    required="in each epoch a new random order of all samples, dealt to the ranks",
)
SAME_CALL = Look(
    of=other_again,
    right=NO_EPOCH,
    mistakes={
        "The first run begins with the order of this seed, the same call again with another one. "
        "What does your function keep from one call to the next?": When(as_seeded),
    },
    otherwise="The same call gives other orders. What else, besides seed, decides them?",
    came=lambda seen: (
        f"{in_text(seen, seen.value)}\nthe same call again, {in_text(seen, seen.value, 1)}"
    ),
    required="the same lists from the same call",
)
OTHER_SEED = Look(
    of=same_with_another_seed,
    right=NO_EPOCH,
    mistakes={
        "Both seeds give the same orders. Where is seed used?": When(
            lambda seen: seen.came["runs"][0] == seen.came["runs"][2]
        ),
    },
    otherwise="Both seeds give the same order in this epoch. How are seed and epoch combined?",
    came=lambda seen: (
        f"{in_text(seen, seen.value)}\n"
        f"with seed={seen.case.seed + 1}, {in_text(seen, seen.value, 2)}"
    ),
    required="another order from another seed",
)
STATE = Look(
    of=lambda seen: seen.came["drawn"],
    right=False,
    otherwise="What draws from torch's own generator here, or seeds it: your lines, or the loader? "
    "Which argument gives the loader another one?",
    came="the right samples; but the state of torch's random numbers has changed {where}",
    required="the state is as before the call: other code draws from it, too",
)
CHECK = OnRanks(
    # no share of 23 is a multiple of 5; 24 divides by all; 3 are fewer than four ranks
    cases=lambda size: [Case(23, 4, 5, 5), Case(24, 4, 6, 0), Case(3, 2, 2, 8)],
    given=lambda case: (range(case.n), case.epochs, case.batch_size, case.seed),
    caller=run_thrice,
    called=lambda case: (
        f"shuffled_every_epoch(dataset of {case.n}, epochs={case.epochs}, "
        f"batch_size={case.batch_size}, seed={case.seed})"
    ),
    looks=[TYPE, FAIR, NEW, SAME_CALL, OTHER_SEED, STATE],
    errors={
        "mutually exclusive with shuffle": "Two arguments of the loader want to choose the order.",
        "no attribute 'set_epoch'": "Which object makes the order? It must know the epoch.",
        "default process group twice": "The caller has made the group already.",
    },
    proves="4 epochs of 23 and 24 samples, each in a new order that seed decides, at 1 to 4 ranks",
)
