"""Mend the loop in the cell: it runs without an error, but on the wrong samples.

All ranks call the function alike. It returns what the rank has trained on: a list for each epoch,
with the samples in their order. dataset[i] is the number i here, so that you see which is which;
forward, backward and step are left out. Rules for every epoch, the first as well:

- The whole data set is shuffled, in a new order, before it is dealt to the ranks. So a rank has
  other samples than in the epoch before.
- Each sample comes, on some rank. All ranks have equally many, len(dataset) / world_size, rounded
  up: as many samples as that takes, and no more, come twice.
- `seed` decides all orders: the same call again returns the same, another seed something else. What
  other code has drawn from torch's or Python's random numbers, on this rank or that, has no say,
  and your function leaves their seeds and states as they are.
"""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from ddp_workbook.exercises import Attempt, NotYet, attempt_on_ranks, in_words, judge_by

HINTS = [
    "Run the cell as it is with one word changed, and read what came back. Are the numbers in "
    "order? Is a number on two ranks, and one on none? Is the second epoch another one?",
    "Three things are wrong. Two are arguments of the sampler: who shuffles, and must the ranks "
    "agree on the order that they deal out?",
    "A sampler makes the order from its seed and its epoch. The seed is to be the same on all "
    "ranks; and nobody tells the sampler which epoch it is, before the loader asks for the order.",
]
FOR_ERRORS = {
    "mutually exclusive with shuffle": "Two arguments of the loader want to choose the order.",
    "no attribute 'set_epoch'": "Which object makes the order? This one must know the epoch.",
    "default process group twice": "The caller has made the group already.",
}
SIZES = (1, 2, 3, 4)
N, EPOCHS, BATCH, SEEDS = 23, 4, 5, (5, 5, 6)  # no share is a multiple of the batch

Run = list[list[list[int]]]  # by epoch and rank


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
    # # TODO: this loop runs, but breaks the rules of the task; find the reasons, and mend it
    # sampler = DistributedSampler(dataset, shuffle=False, seed=seed + dist.get_rank())
    # loader = DataLoader(dataset, batch_size, sampler=sampler)
    # trained_on = []
    # for epoch in range(epochs):
    #     trained_on.append([])
    #     for samples in loader:
    #         trained_on[epoch] += samples.tolist()
    # return trained_on
    ### END SOLUTION


def runs_with(shuffled_every_epoch: Callable, seeds: tuple[int, ...]) -> list[Any]:
    """In a rank, with random numbers of its own: what comes back for each seed."""
    answers, rank = [], dist.get_rank()
    torch.manual_seed(100 + rank)
    random.seed(100 + rank)
    for seed in seeds:
        answers.append(shuffled_every_epoch(range(N), EPOCHS, BATCH, seed))
        compare_type(called(seed), rank, answers[-1])
    return answers


def called(seed: int) -> str:
    """The call in words."""
    return f"shuffled_every_epoch(dataset of {N}, epochs={EPOCHS}, batch_size={BATCH}, seed={seed})"


def compare_type(called: str, rank: int, answer: Any) -> None:
    """Raise NotYet if it is no list of a list of int for each epoch."""
    came_back, look = in_words(answer), "What did the given loop return? Is it still a list of int?"
    lists = type(answer) is list and all(type(one) is list for one in answer)
    if answer is None:
        look = "Does the function return its lists, on every path?"
    elif lists and len(answer) != EPOCHS:
        came_back += f", of length {len(answer)}"
        look = "One list for each epoch. Do all epochs run?"
    elif lists and all(type(sample) is int for one in answer for sample in one):
        return
    required = f"{EPOCHS} lists of int, one for each epoch"
    raise NotYet(called, f"on rank {rank}: {came_back}", required, look)


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Look at each epoch of the first run, at all its epochs, and at the three runs."""
    for size in sizes:
        answers, _ = attempt_on_ranks(attempt, runs_with, each=[SEEDS] * size)
        runs = [[*map(list, zip(*run, strict=True))] for run in zip(*answers, strict=True)]
        for epoch, lists in enumerate(runs[0]):
            judge_samples(epoch, lists)
        for epoch in range(EPOCHS):
            judge_order(epoch, runs[0])
        judge_seeds(runs)
    return f"{EPOCHS} epochs of {N} samples, each in a new order that seed decides, at 1 to 4 ranks"


def in_text(epoch: int, lists: list[list[int]]) -> str:
    """A line for each rank."""
    lines = (f"rank {rank}: {in_words(own)}" for rank, own in enumerate(lists))
    return "\n".join([f"epoch {epoch}:", *lines])


def judge_samples(epoch: int, lists: list[list[int]]) -> None:
    """Each sample on some rank, and equally many on each."""
    share, lengths = -(-N // len(lists)), [len(own) for own in lists]
    missing = sorted(set(range(N)) - set().union(*lists))
    dropped = missing and max(lengths) <= share and lengths != [share] * len(lists)
    repeated = any(len(set(own)) < len(own) for own in lists)
    same = len(lists) > 1 and all(sorted(own) == sorted(lists[0]) for own in lists)
    judge_by(
        called(SEEDS[0]),
        f"{in_text(epoch, lists)}\non no rank: {in_words(missing) if missing else 'none'}",
        f"all samples, on each rank {share}",
        (set().union(*lists) - set(range(N)), "Numbers that the data set does not have."),
        (lengths == [0] * len(lists), "Does the loop over the batches run in this epoch?"),
        (same and share < N == len(set(lists[0])), "Each rank has all. Who deals them out?"),
        (same, "All ranks have the same samples. What tells the sampler which rank it is?"),
        (dropped, "Who drops what does not divide: the sampler, or the loader its last batch?"),
        (
            repeated and missing,
            "Some come several times on a rank, and some never. Who draws them?",
        ),
        (missing, "Do all ranks deal from the same order, or has each made one of its own?"),
        (
            max(lengths) > share,
            "More than its share. Which samples come several times in a list, and why?",
        ),
        (min(lengths) < share, "Unequally many. For whom do the others wait in the last step?"),
    )


def judge_order(epoch: int, run: Run) -> None:
    """A new order in each epoch, from the whole data set."""
    lists, before = run[epoch], run[:epoch]
    steps = [after - sample for own in lists for sample, after in pairwise(own)]
    same_step = max(map(steps.count, steps)) > 0.7 * len(steps)
    judge_by(
        called(SEEDS[0]),
        "\n".join(in_text(i, run[i]) for i in sorted({0, epoch})),
        "in each epoch a new random order of all samples, dealt to the ranks",
        (same_step, "Neighbours stay neighbours. Who was to shuffle the samples?"),
        (
            epoch == 1 and lists in before and run[2] not in run[:2],
            "Only epochs 0 and 1 are alike. When is the order made, and when is the epoch told?",
        ),
        (lists in before, "An order comes again. What tells an epoch from the one before?"),
        (
            len(lists) > 1 and epoch and [*map(set, lists)] == [*map(set, run[0])],
            "A rank's samples are always the same ones. Which is first, shuffling or dealing?",
        ),
    )


def judge_seeds(runs: list[Run]) -> None:
    """The orders come from `seed`, and from nothing else."""
    first, again, other = runs
    epoch = next((i for i in range(EPOCHS) if first[i] != again[i]), 0)
    judge_by(
        called(SEEDS[0]),
        f"{in_text(epoch, first[epoch])}\nthe same call again, {in_text(epoch, again[epoch])}\n"
        f"with seed={SEEDS[2]}, {in_text(epoch, other[epoch])}",
        "the same from the same call, another order from another seed",
        (first != again, "The same call gives other orders. What, besides seed, has a say?"),
        (first == other, "Both seeds give the same orders. Where does seed come in?"),
    )
