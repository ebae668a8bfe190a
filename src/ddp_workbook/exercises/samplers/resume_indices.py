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
from typing import NamedTuple

import torch

from ddp_workbook.judging import (
    Comparison,
    Edit,
    Observation,
    Pattern,
    SingleProcessCheck,
    edit,
    in_words,
)
from ddp_workbook.judging.index_sharding import (
    PATTERNS,
    WRONG_ORDERS,
    concatenated,
    expected_indices,
    format_returned,
    returned_indices,
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


class Stop(NamedTuple):
    """An epoch that was stopped, and the ranks after it."""

    n: int
    epoch: int
    seed: int
    done: int
    size: int


def cases() -> list[Stop]:
    """Some in which mistakes differ, many ranks first; then all stops of short epochs."""
    telling, short = [], []
    for size in (4, 3, 2, 1):
        settings = [(3, 20), (0, 0), (3, 5)]  # epoch, seed
        telling += [Stop(size * (size + 2) + 2, *pair, size + 1, size) for pair in settings]
        short += [Stop(n, 2, 7, done, size) for n in (5, 2, 1, 0) for done in range(n, -1, -1)]
    large = Stop(40_000, 1, 2**31, 39_990, 3)
    return [*telling, telling[0], large, *short]


def order_of(case: Stop) -> list[int]:
    """The epoch's order: what a single rank has if nothing is done yet."""
    return resume_indices(case.n, case.epoch, case.seed, done=0, rank=0, world_size=1)


def call_text(case: Stop) -> str:
    """The call, and what it is about."""
    order, done = order_of(case), case.done
    return (
        f"resume_indices({case.n}, epoch={case.epoch}, seed={case.seed}, done={done}, "
        f"rank, world_size={case.size})\n"
        f"done: {in_words(order[:done])}\nleft: {in_words(order[done:])}"
    )


def describe_result(obs: Observation) -> str:
    """The lists, which samples the epoch uses several times if it goes on so, and which never."""
    order = order_of(obs.case)
    times = Counter(order[: obs.case.done] + concatenated(returned_indices(obs)))
    twice = [sample for sample in times if times[sample] > 1]
    never = [sample for sample in order if not times[sample]]
    words = f"in the whole epoch more than once: {in_words(twice)}, never: {in_words(never)}"
    return f"{format_returned(obs)}\n{words}"


def returns(*replacements: str) -> list[Edit]:
    """Mistakes in what is returned of `order`."""
    return [edit("order[done + rank :: world_size]", replacement) for replacement in replacements]


WHOLE_SHARE = "order[rank::world_size]"  # what a rank had at the beginning of the epoch
PADDED_SHARE = (
    "(order + order[: -n % world_size])[rank::world_size]"  # that, as the sampler gives it
)
SHARES = ("done // world_size", "-(-done // world_size)")  # of each rank in what is done
CHECK = SingleProcessCheck(
    cases=cases,
    times=lambda case: case.size,
    make_args=lambda case, rank: (*case[:4], rank, case.size),
    call_text=call_text,
    compare={
        "form": "Which of your lines makes a list of plain numbers?",
        "samples": Comparison(
            "Strike out the samples that are done, and write a rank under each other "
            "one. What differs?",
            actual=describe_result,
            required="{all_expected}",
        ),
    },
    mistakes={
        **WRONG_ORDERS,
        "All ranks get the same samples. Where does the rank come in?": returns(
            "order[done:]", "order[done::world_size]"
        ),
        "The order is not shuffled. Which one did the run have before the stop?": returns(
            "list(range(n))[done + rank :: world_size]"
        ),
        "Every rank leaves out `done` samples of its own. Whose samples does `done` count?": (
            returns(f"{WHOLE_SHARE}[done:]")
        ),
        "This is the whole epoch. What has been trained on before the stop?": returns(
            WHOLE_SHARE, PADDED_SHARE
        ),
        "The whole epoch was dealt, and each rank left out a share of its part. What if `done` is "
        "no multiple of the world size?": returns(
            *[f"{own}[{share} :]" for own in (WHOLE_SHARE, PADDED_SHARE) for share in SHARES]
        ),
        "The dealing goes on as if nothing had happened. Which rank gets the first sample that is "
        "left?": returns("order[done + (rank - done) % world_size :: world_size]"),
        "Ranks begin at the right places. Which ranks get the samples that follow, one after the "
        "other?": returns("order[done + rank :]"),
        "These are the samples that are done. Which are left?": returns(
            "order[:done][rank::world_size]"
        ),
        "Left out are the last samples of the order. At which end are those that are done?": (
            returns("order[: n - done][rank::world_size]")
        ),
        "Some samples are left out, so that all ranks get equally many. Do they have to?": returns(
            "order[done : n - (n - done) % world_size][rank::world_size]"
        ),
        "The right samples are left, sorted by their numbers. What is lost in a set, or in "
        "sorting?": returns("sorted(order[done:])[rank::world_size]"),
        "Left out are the samples with numbers below done. Are those the ones that are done?": (
            returns("[i for i in order if i >= done][rank::world_size]")
        ),
        "Sample 0 is lost. Which of your lines treats 0 as nothing?": returns(
            "[i for i in order[done + rank :: world_size] if i]"
        ),
        "One sample too many, or too few, is taken as done. Which is the first that is "
        "left?": returns(
            "order[done + 1 + rank :: world_size]", "order[done - 1 + rank :: world_size]"
        ),
        "All samples are done. What is left for a rank then?": Pattern(
            lambda obs: obs.case.done == obs.case.n, "samples"
        ),
        **PATTERNS,
        "Right so far, but more samples follow. Must all ranks get equally many?": Pattern(
            lambda obs: all([*o.value[: len(o.expected)]] == o.expected for o in obs.all_ranks),
            "samples",
        ),
        "Each rank has as many samples as it must, but not the right ones. Is the order the one "
        "before the stop: how many samples did that have, and what was its seed?": Pattern(
            lambda obs: [*map(len, returned_indices(obs))] == [*map(len, expected_indices(obs))],
            "samples",
        ),
    },
    errors={
        "without overflow": "A data set can be large. Which numbers does the dtype hold?",
        "randperm()": "randperm wants n, and generator=, a torch.Generator. What does it get here?",
        "by zero": "Nothing may be left: n - done can be 0. What do you divide by then?",
        "out of range": "There may be fewer samples left than ranks, or none.",
        "empty": "There may be fewer samples left than ranks, or none.",
    },
    on_pass="wherever epochs of 0 to 5 samples stop, and in longer ones, 1 to 4 ranks train once "
    "on each sample that is left, in the epoch's order",
)
