"""Replace every gradient by its mean over the ranks.

Each rank has computed gradients from its own rows, and calls your function between `backward` and
`step`. Afterwards the `.grad` of each parameter holds, on every rank, the mean of the ranks'
gradients.

- A parameter without gradient, such as a frozen one, has none on any rank. Its `.grad` stays None.
- Parameters can differ in dtype, and not every gradient is contiguous.
- `zero_grad` sets `.grad` to None: in the next step the gradients are new tensors.
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
    "One of the collectives gives every rank the sum of what the ranks hold. Which gradients would "
    "you hand to it, and on which ranks?",
    "all_reduce works in place on one tensor. A sum of world_size gradients is how many times "
    "their mean?",
    "A loop over model.parameters(), the same on all ranks, which passes over a parameter whose "
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
                "This is the sum over the ranks. By how much is a sum larger than a mean?": total,
                "Nothing was sent. How do the ranks get to know each other's gradients?": When(
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
                "All gradients are as before, though something was sent. Which tensor does the "
                "collective write into, and who holds it afterwards?": When(keeps_its_own),
                "This is the rank's own gradient. Does your loop reach all of them, those of the "
                "model itself, those of inner modules, and those after one that is None?": (
                    lambda case, rank: case[rank]
                ),
                "A parameter without gradient is passed over. It needs no zeros.": (
                    lambda case: zeros_for_none(mean(case))
                ),
                "Where has the gradient gone? zero_grad and set_to_none take it away.": (
                    lambda case: dict.fromkeys(case[0])
                ),
                "Until an asynchronous collective has been waited for, it may write into its "
                "tensor. Which of your lines use that tensor before?": When(
                    lambda seen: any(row.get("under_way") for row in seen.wire)
                ),
            },
            otherwise="Which of the ranks' gradients are in this one, and how often?",
        ),
    ],
    errors={
        "NoneType": "A frozen parameter has no gradient: what is its .grad, and what then?",
        "SIGABRT": "Do all ranks hand the same gradients to the collective, in the same order? "
        "Where shapes or dtypes differ, gloo ends the process. Each process orders a set anew.",
    },
    proves="every gradient is the mean of the ranks' gradients, weights and frozen parameters are "
    "as they were, at 1 to 4 ranks",
)
