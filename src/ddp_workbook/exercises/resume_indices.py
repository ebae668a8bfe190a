"""Return the samples that a rank still has to train on after a stop in the middle of an epoch.

The epoch has the same order on all ranks and in all runs: the result of torch.randperm(n) with a
torch.Generator seeded with seed + epoch. All ranks together have trained on its first `done`
samples. The job may have stopped several times in this epoch, with any number of ranks, so `done`
need not be a multiple of anything. Now there are world_size ranks; you need no process group.

- The rest is dealt like cards, in the epoch's order: its first sample to rank 0, the second to rank
  1, and so on; after the last rank comes rank 0 again.
- Each sample that is left goes to one rank, once.
- Nothing is added or left out to make the shares equal: a rank may get one sample more than
  another, or none at all. If done == n, every rank gets an empty list.
"""

from collections import Counter
from dataclasses import dataclass

import torch

from ddp_workbook.exercises import Alone, Look, Seen, When, in_words
from ddp_workbook.exercises.judging.dealing import (
    A_LIST_OF_INT,
    MISTAKES,
    UNEXPLAINED,
    Deal,
    all_came,
    all_right,
    dealt,
    lengths,
    one_of,
    together,
)

MINUTES = 8
HINTS = [
    "Write down an order of 10 samples and strike out the first 4. Who gets the fifth, now that "
    "there are 3 ranks? Does it matter how many there were before?",
    "The order does not depend on the ranks. Make all of it again, as in the run that was stopped, "
    "and only then leave out what is done.",
    "The first sample for rank 0 is at place `done` of the order. At which place is rank 1's first "
    "sample, and how many places further is its second?",
]


def resume_indices(
    n: int, epoch: int, seed: int, done: int, rank: int, world_size: int
) -> list[int]:
    """This rank's samples in the rest of the epoch, out of 0 to n - 1, in the epoch's order."""
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()  # as before the stop
    return order[done + rank :: world_size]
    ### END SOLUTION


@dataclass(frozen=True, kw_only=True)
class Stop(Deal):
    """An epoch that was stopped, and the ranks after it."""

    done: int

    def cards(self, order: list[int]) -> list[int]:
        """What is left of an order."""
        return order[self.done :]

    @property
    def in_words(self) -> str:
        """The call, and what it is about."""
        return (
            f"resume_indices({self.n}, epoch={self.epoch}, seed={self.seed}, done={self.done}, "
            f"rank, world_size={self.size})\n"
            f"done: {in_words(self.order[: self.done])}\nleft: {in_words(self.right)}"
        )


def cases() -> list[Stop]:
    """Some in which mistakes differ, many ranks first; then all stops of short epochs."""
    telling, short = [], []
    for size in (4, 3, 2, 1):
        samples = {"n": size * (size + 2) + 2, "done": size + 1, "size": size}
        settings = [(3, 20), (0, 0), (3, 5)]  # epoch, seed
        telling += [Stop(epoch=epoch, seed=seed, **samples) for epoch, seed in settings]
        for n in (5, 2, 1, 0):
            stops = range(n, -1, -1)
            short += [Stop(n=n, done=done, size=size, epoch=2, seed=7) for done in stops]
    large = Stop(n=40_000, done=39_990, size=3, epoch=1, seed=2**31)
    return [*telling, telling[0], large, *short]


def what_came(seen: Seen) -> str:
    """The lists, which samples the epoch uses several times if it goes on so, and which never."""
    times = Counter(seen.case.order[: seen.case.done] + together(seen))
    twice = [sample for sample in times if times[sample] > 1]
    never = [sample for sample in seen.case.order if not times[sample]]
    words = f"in the whole epoch more than once: {in_words(twice)}, never: {in_words(never)}"
    return f"{all_came(seen)}\n{words}"


def whole(case: Stop, rank: int) -> list[list[int]]:
    """What a rank had at the beginning of the epoch, padded or not."""
    padded = case.order + case.order[: -case.n % case.size]
    return [order[rank :: case.size] for order in (case.order, padded)]


def as_before(case: Stop, rank: int) -> list[list[int]]:
    """That, without a share of what is done, rounded down or up."""
    shares = case.done // case.size, -(-case.done // case.size)
    return [own[share:] for own in whole(case, rank) for share in shares]


def lists_swapped(seen: Seen) -> bool:
    """Whether the ranks have got each other's lists."""
    return sorted(one.value for one in seen.everyone) == sorted(o.right for o in seen.everyone)


def only_added(seen: Seen) -> bool:
    """Whether the ranks' lists are right but for more at their ends, and equally long."""
    begin = all(one.value[: len(one.right)] == one.right for one in seen.everyone)
    return begin and len(set(lengths(seen)[0])) == 1


CHECK = Alone(
    cases=cases,
    times=lambda case: case.size,
    given=lambda case, rank: (case.n, case.epoch, case.seed, case.done, rank, case.size),
    called=lambda case: case.in_words,
    looks=[
        A_LIST_OF_INT,
        Look(
            right=dealt(lambda case: case.right),
            mistakes={
                "All samples are done. What is left for a rank then?": When(
                    lambda seen: seen.case.done == seen.case.n
                ),
                **MISTAKES,
                "The order is not shuffled. Which one did the run have before the stop?": dealt(
                    lambda case: case.cards(list(range(case.n)))
                ),
                "Every rank leaves out `done` samples of its own. Whose samples does `done` "
                "count?": lambda case, rank: case.order[rank :: case.size][case.done :],
                "This is the whole epoch. What has been trained on before the stop?": one_of(whole),
                "This is right only if the run had as many ranks as now, and stopped after a whole "
                "step. What if it had more ranks, or fewer?": one_of(as_before),
                "The dealing goes on as if nothing had happened. Which rank gets the first sample "
                "that is left?": lambda case, rank: case.right[
                    (rank - case.done) % case.size :: case.size
                ],
                "Ranks begin at the right places. Which ranks get the samples that follow, one "
                "after the other?": lambda case, rank: case.right[rank:],
                "These are the samples that are done. Which are left?": dealt(
                    lambda case: case.order[: case.done]
                ),
                "Left out are the last samples of the order. At which end are those that are "
                "done?": dealt(lambda case: case.order[: case.n - case.done]),
                "Some samples are left out, so that all ranks get equally many. Do they have to?": (
                    dealt(lambda case: case.right[: len(case.right) // case.size * case.size])
                ),
                "The right samples are left, sorted by their numbers. What is lost in a set, or in "
                "sorting?": dealt(lambda case: sorted(case.right)),
                "Left out are the samples with numbers below done. Are those the ones that are "
                "done?": dealt(lambda case: [i for i in case.order if i >= case.done]),
                "Sample 0 is lost. Which of your lines treats 0 as nothing?": (
                    lambda case, rank: [i for i in case.right[rank :: case.size] if i]
                ),
                "One sample too many is taken as done.": dealt(lambda case: case.right[1:]),
                "One sample too few is taken as done.": dealt(
                    lambda case: case.order[max(0, case.done - 1) :]
                ),
                "Some samples are added, so that all ranks get equally many. Do they have to?": (
                    When(only_added)
                ),
                "Each list is right, but on another rank. Which rank gets the first sample that is "
                "left?": When(lists_swapped),
                **UNEXPLAINED,
                "The right samples are left, in another order than the epoch's. What is shuffled "
                "again?": When(lambda seen: sorted(together(seen)) == sorted(seen.case.right)),
                "This is not the order before the stop. How many samples did that have, and what "
                "was its seed?": When(lambda seen: lengths(seen)[0] == lengths(seen)[1]),
            },
            otherwise="Strike out the samples that are done, and write a rank under each other "
            "one. What differs?",
            came=what_came,
            required=all_right,
        ),
    ],
    errors={
        "process group": "There is no process group. Which arguments give rank and world size?",
        "without overflow": "A data set can be large. Which numbers does the dtype hold?",
        "randperm()": "randperm wants n, and generator=, a torch.Generator. What does it get here?",
        "by zero": "Nothing may be left: n - done can be 0. What do you divide by then?",
        "out of range": "There may be fewer samples left than ranks, or none.",
        "empty": "There may be fewer samples left than ranks, or none.",
    },
    proves="wherever epochs of 0 to 5 samples stop, and in longer ones, 1 to 4 ranks train once on "
    "each sample that is left, in the epoch's order",
)
