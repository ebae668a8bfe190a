"""Replace every gradient by its mean over the ranks.

Each rank has computed gradients from its own rows. Your function is called on all ranks, between
`backward` and `step`. Afterwards, on every rank, the `.grad` of each parameter holds the mean of
the ranks' gradients.

- A parameter without a gradient, such as a frozen one, has none on any rank. Its `.grad` stays
  None.
- Parameters can differ in dtype, and some gradients are not contiguous.
- `zero_grad` sets `.grad` to None, so in the next step the gradients are new tensors.
"""

import torch.distributed as dist
from torch import nn

from ddp_workbook.exercises import Look, OnRanks, Seen, When
from ddp_workbook.exercises.judging.gradients import (
    WEIGHTS_STAY,
    cases,
    mean,
    model_of,
    total,
    weights_and_gradients,
    where_they_held,
    zeros_for_none,
)
from ddp_workbook.exercises.judging.same import same

MINUTES = 8
HINTS = [
    "One collective gives every rank the sum of what the ranks hold. Which gradients would you "
    "hand to it, and on which ranks?",
    "all_reduce works in place on one tensor. A sum of world_size gradients is how many times "
    "their mean?",
    "Loop over model.parameters(), in the same order on all ranks, and skip a parameter whose "
    ".grad is None.",
]


def average_gradients(model: nn.Module) -> None:
    """Replace each parameter's .grad by its mean over the ranks."""
    ### BEGIN SOLUTION
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()  # all_reduce adds up
    ### END SOLUTION


def keeps_its_own(seen: Seen) -> bool:
    """Whether all gradients of this rank are what they were."""
    return same(seen.value, seen.case[seen.rank])


CHECK = OnRanks(
    cases=cases,
    called=lambda case, part: f"average_gradients(model){where_they_held(case, part)}",
    given=model_of,
    observe=weights_and_gradients,
    looks=[
        WEIGHTS_STAY,
        Look(
            of=lambda seen: seen.came["gradients"],
            right=mean,
            mistakes={
                "This is the mean, divided by the number of ranks once more. Is it a mean "
                "already?": lambda case: total(case, 1 / len(case) ** 2),
                "This is the sum over the ranks. Which line makes it a mean, and does .grad hold "
                "the result?": total,
                "Nothing was sent. How does a rank learn the gradients of the others?": When(
                    lambda seen: not seen.wire
                ),
                "This is the rank's own gradient, divided by the number of ranks. Which tensor "
                "holds the sum? For some gradients contiguous() makes a copy.": (
                    lambda case, rank: {
                        name: None if own is None else own / len(case)
                        for name, own in case[rank].items()
                    }
                ),
                "Some ranks have the mean, this one has its own gradients. How does every rank get "
                "the result?": When(
                    lambda seen: (
                        keeps_its_own(seen) and any(same(o.value, o.right) for o in seen.everyone)
                    )
                ),
                "After reduce or gather one rank alone has the result. How do the others get "
                "it?": When(lambda seen: {"reduce", "gather"} & {*seen.ops} and seen.rank),
                "This is rank 0's gradient, on every rank. Where are those of the others?": When(
                    lambda seen: all(same(one.value, one.case[0]) for one in seen.everyone)
                ),
                "All gradients are as before, though something was sent. Which tensor does the "
                "collective write into, and who holds it afterwards?": When(keeps_its_own),
                "This is the rank's own gradient. Does your loop reach all of them: those of the "
                "model itself, of inner modules, of each dtype, and after one that is None?": (
                    lambda case, rank: case[rank]
                ),
                "Skip a parameter without a gradient. It needs no zeros.": (
                    lambda case: zeros_for_none(mean(case))
                ),
                "The gradient is None now. zero_grad and set_to_none remove it.": (
                    lambda case: dict.fromkeys(case[0])
                ),
                "An asynchronous collective may write into its tensor until you have waited for "
                "it. Which of your lines use that tensor before?": When(
                    lambda seen: any(row.get("under_way") for row in seen.wire)
                ),
            },
            otherwise="Which of the ranks' gradients are in this one, how often, and divided by "
            "what?",
        ),
    ],
    errors={
        "Boolean value of Tensor": "A gradient is a tensor of many numbers, so it is neither true "
        "nor false. How do you ask whether it is None?",
        "view size is not compatible": "Some gradients are not contiguous, and view needs "
        "contiguous memory. Does the collective need a flat tensor?",
        "NoneType": "A frozen parameter has no gradient: its .grad is None. What should your "
        "loop do then?",
        "SIGABRT": "Do all ranks hand the same gradients to the collective, in the same order? "
        "If shapes or dtypes differ, gloo aborts the process. A set has another order in each "
        "process.",
    },
    proves="every gradient is the mean of the ranks' gradients, weights and frozen parameters are "
    "as they were, at 1 to 4 ranks",
)
