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
from typing import Any, NamedTuple

import torch
from torch.utils.data import DistributedSampler

from ddp_workbook.judging import (
    CheckFailed,
    Comparison,
    Edit,
    Observation,
    Pattern,
    SingleProcessCheck,
    edit,
)
from ddp_workbook.judging.index_sharding import (
    PATTERNS,
    WRONG_ORDERS,
    expected_indices,
    returned_indices,
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
    dealt = [order[place % n] for place in range(each * world_size)]
    return dealt[rank::world_size]
    ### END SOLUTION


class Epoch(NamedTuple):
    """An epoch of all ranks; the defaults are those of the function."""

    n: int
    world_size: int
    epoch: int = 0
    shuffle: bool = True
    drop_last: bool = False
    seed: int = 0


def cases() -> list[Epoch]:
    """One rule after the other, without shuffling at first; then few samples, by many flags."""
    epochs = []
    for size in (4, 3, 2, 1):
        even = size * max(3, 8 // size)  # 8 to 12 samples
        lengths = (even, even + 1, even + size - 1, min(size - 1, 1))
        epochs += [Epoch(n, size, 0, False, last) for last in (False, True) for n in lengths]
        epochs += [Epoch(even, size, epoch, seed=seed) for seed in (0, 5) for epoch in (0, 2)]
        epochs += [Epoch(even + 1, size, 2, True, last, 5) for last in (False, True)]
    repeats = epochs[8:12]
    flags = [(shuffle, last) for shuffle in (False, True) for last in (False, True)]
    few = [(n, size, 3, *pair, 10) for size in (4, 3, 2, 1, 7) for n in (2, 0) for pair in flags]
    return [*epochs, *repeats, *(Epoch(*fields) for fields in few)]


def options(case: Epoch) -> tuple:
    """The arguments that have a default; () if all have it."""
    return case[2:] if case != Epoch(case.n, case.world_size) else ()


def call_text(case: Epoch) -> str:
    """The call, in which every rank gives its own number."""
    words = "epoch={}, shuffle={}, drop_last={}, seed={}".format(*case[2:])
    if options(case):
        return f"my_indices({case.n}, rank, {case.world_size}, {words})"
    return f"my_indices({case.n}, rank, {case.world_size}), so that {words}"


def by_sampler(case: Epoch, rank: int) -> list[int]:
    """What DistributedSampler gives to a rank."""
    settings = {"shuffle": case.shuffle, "drop_last": case.drop_last, "seed": case.seed}
    sampler = DistributedSampler(range(case.n), case.world_size, rank, **settings)
    sampler.set_epoch(case.epoch)
    return list(sampler)


def make_args(case: Epoch, rank: int) -> tuple:
    """The arguments of a call; from now on no sampler can be made in this process."""
    DistributedSampler.__init__ = refuse
    return (case.n, rank, case.world_size, *options(case))


def call_once(function: Callable, *arguments: Any) -> list[int]:
    """Call it; if it has seeded the whole process, say what the task asks for instead."""
    seed = torch.initial_seed()
    try:
        return function(*arguments)
    except CheckFailed as refused:
        if torch.initial_seed() == seed:
            raise
        look = "torch.manual_seed seeds the generator that all code of the process draws from. "
        look += "Which generator does the task's first rule seed, and how does randperm get it?"
        called, came_back, required, _ = refused.args
        raise CheckFailed(called, came_back, required, look) from None


def refuse(*_: Any, **__: Any) -> None:
    """In place of DistributedSampler's own __init__."""
    look = "Which of the task's three rules does it follow for you?"
    raise CheckFailed(
        "my_indices", "a DistributedSampler is asked", "lines that do what it does", look
    )


SHARE_SIZE = "n // world_size if drop_last else -(-n // world_size)"
DEALT_ORDER = "[order[place % n] for place in range(each * world_size)]"
SHARE = "dealt[rank::world_size]"


def extend_order(*samples: str) -> list[Edit]:
    """Mistakes in what follows the order if it is too short."""
    return [edit(DEALT_ORDER, f"(order + {more})[: each * world_size]") for more in samples]


def if_drop_last(replacement: str) -> Edit:
    """A mistake in how the order is cut."""
    return edit(DEALT_ORDER, f"{replacement} if drop_last else {DEALT_ORDER}")


def shuffles_own_part(obs: Observation) -> bool:
    """Whether each rank has the samples that it has without shuffling, in another order."""
    unshuffled = [
        by_sampler(obs.case._replace(shuffle=False), rank_obs.rank) for rank_obs in obs.all_ranks
    ]
    is_shuffled = obs.case.shuffle and obs.size > 1
    return is_shuffled and [*map(sorted, returned_indices(obs))] == [*map(sorted, unshuffled)]


CHECK = SingleProcessCheck(
    cases=cases,
    call_text=call_text,
    times=lambda case: case.world_size,
    make_args=make_args,
    caller=call_once,
    compare={
        "form": "Which of your lines makes a list of plain numbers?",
        "samples": Comparison(
            "Write down what is dealt, and under each sample its rank. Where is the first mistake?",
            by_sampler,
            actual="{all_values}",
            required="{all_expected}",
        ),
    },
    mistakes={
        **WRONG_ORDERS,
        "All ranks get the same samples. Where does the rank come in?": [
            edit(SHARE, "dealt"),
            edit(SHARE, "dealt[::world_size]"),
        ],
        "Is it shuffled exactly when `shuffle` is True?": [
            edit("if shuffle:", f"if {condition}:")
            for condition in ("False", "True", "not shuffle")
        ],
        "The order is extended first and shuffled afterwards. Which of the rules comes first?": (
            edit(
                "order = list(range(n))",
                f"each = {SHARE_SIZE}\n    order = list(range(each * world_size))",
                "randperm(n,",
                "randperm(each * world_size,",
                "order[place % n]",
                "order[place] % n",
            )
        ),
        "The ranks get unequal numbers of samples. What happens to the order before it is dealt?": [
            *extend_order("[]"),
            edit(DEALT_ORDER, "order"),
        ],
        "drop_last is False, and yet samples are left out.": edit(SHARE_SIZE, "n // world_size"),
        "The order is extended, but not by its own beginning. Which sample comes again first, and "
        "which one follows it?": extend_order(
            "order[n - -n % world_size :]",
            "order[::-1]",
            "order[-1:] * world_size",
            "order[:1] * world_size",
            "list(range(n)) * world_size",
        ),
        "Each rank fills up its own part. Is that before the order is dealt, or after?": edit(
            SHARE, f"(own := order[rank::world_size]) + own[:1] * (len({SHARE}) - len(own))"
        ),
        "More is added, or cut off, than necessary. How many are missing to the next multiple of "
        "world_size, and how many are above the one below?": [
            edit("-(-n // world_size)", "(n // world_size + 1 if n else 0)"),
            if_drop_last("order[: -(n % world_size)]"),
        ],
        "The ranks get unequal numbers of samples. What does drop_last do to the order?": (
            if_drop_last("order")
        ),
        "drop_last is True. Is the order extended then?": edit(SHARE_SIZE, "-(-n // world_size)"),
        "The order has lost its beginning, not its end.": if_drop_last("order[n % world_size :]"),
        "Every rank leaves out one. Which ranks had one more than the others?": edit(
            SHARE, f"(order[rank::world_size][:-1] if drop_last and n % world_size else {SHARE})"
        ),
        "Each rank has the samples that it has without shuffling, in another order. Which "
        "of the rules comes first?": Pattern(shuffles_own_part, "samples"),
        **PATTERNS,
        "Right so far, but too short. How long must the order be before it is dealt?": Pattern(
            lambda obs: all(o.expected[: len(o.value)] == [*o.value] for o in obs.all_ranks),
            "samples",
        ),
        "Does every rank get as many samples as it must?": Pattern(
            lambda obs: [*map(len, returned_indices(obs))] != [*map(len, expected_indices(obs))],
            "samples",
        ),
    },
    errors={
        "by zero": "n can be 0, or smaller than world_size. What do you divide by then?",
        "randperm()": "randperm wants n, and generator=, a torch.Generator. What does it get here?",
        "out of range": "How long is the list, and how far do you read? Think of n = 0, too.",
        "float": "Half a sample cannot be dealt. What does / give?",
        "list": "Which of your names is a list here, and which a range, a tensor or a number?",
    },
    on_pass="every rank gets what DistributedSampler gives it, for 0 to 13 samples, at world sizes "
    "1 to 4 and 7, with and without shuffle and drop_last",
)
