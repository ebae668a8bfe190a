"""Combine the gradients of uneven pieces into the gradient of the batch.

Each replica has computed the gradient of the mean loss over its own piece. `gradients[r]` lists the
gradients of replica r, one tensor for each parameter, in the same order on all replicas. `rows[r]`
is the number of samples in its piece, at least 1. Return the gradient of the mean loss over all
samples of the batch, as a list with one tensor for each parameter.

- Parameters differ in shape, and a gradient has the shape of its parameter.
- Do not change `gradients` or `rows`.
"""

import torch
from torch import Tensor

from ddp_workbook.judging import Comparison, Edit, Pattern, SingleProcessCheck, edit, in_words

MINUTES = 10
HINTS = [
    "Of ten samples, replica 0 has three and replica 3 has one. What part of the mean comes "
    "from each of them?",
    "A replica's mean loss stands for rows[r] of the sum(rows) samples. What share is that?",
    "For each parameter, a sum over the replicas: share times gradient. zip(*gradients) goes "
    "through the parameters, and yields the gradients of all replicas for each.",
]


def weighted_gradients(gradients: list[list[Tensor]], rows: list[int]) -> list[Tensor]:
    """The gradient of the batch's mean loss, one tensor for each parameter."""
    ### BEGIN SOLUTION
    shares = [own / sum(rows) for own in rows]
    combined = []
    for of_one in zip(*gradients, strict=True):  # the replicas' gradients of one parameter
        weighted = [share * one for share, one in zip(shares, of_one, strict=True)]
        combined.append(sum(weighted))
    return combined
    ### END SOLUTION


SHAPES = [(2,), (2, 3), (), (3,), (4, 2)]


def make_args(rows: list[int]) -> tuple[list[list[Tensor]], list[int]]:
    """Gradients in tenths, of both signs, which differ in each call."""
    random = torch.Generator().manual_seed(int("".join(map(str, rows))))
    gradients = [
        [torch.randint(-99, 99, shape, generator=random) / 10 for shape in SHAPES] for _ in rows
    ]
    return gradients, list(rows)


def of_replicas(rows: list[int], parameter: str) -> str:
    """In words, what each replica has for a parameter."""
    replicas = enumerate(make_args(rows)[0])
    return ", ".join(f"{in_words(own[int(parameter)])} on replica {r}" for r, own in replicas)


def weights(of_replicas: str) -> Edit:
    """A mistake in the list of the replicas' weights."""
    return edit("[own / sum(rows) for own in rows]", of_replicas)


IN_PLACE_HINT = (
    "Which line works in place? detach shares memory, and +=, *=, names that end in _ and an index "
    "before = write into it."
)
LIST_HINT = "gradients, gradients[r] and rows are plain lists. Which of them do you compute with?"
SHAPE_HINT = "Parameters have two dimensions, one, or none. Does this line suit all of them?"
CHECK = SingleProcessCheck(
    cases=[[3, 3, 3, 1], [6, 4], [2, 5, 1, 4], [10], [2, 4, 4]],
    call_text=lambda rows, parameter: (
        f"weighted_gradients(gradients, {rows})"
        + (f", where parameter {parameter} has {of_replicas(rows, parameter)}" if parameter else "")
    ),
    make_args=make_args,
    compare={
        "form": "Which of your lines makes the list of gradients?",
        "shapes": Comparison(
            "Each parameter has its own shape. Which line decides it here?",
            SHAPES,
            select=lambda obs: [tuple(gradient.shape) for gradient in obs.actual],
        ),
        "gradient": Comparison(
            "How much weight does each replica have here, and what do the weights add up to?",
            select=lambda obs: [gradient.float() for gradient in obs.actual],  # in any dtype
            actual="{value} for parameter {part}",
        ),
    },
    mistakes={
        "What does your loop go through, and does it reach the end? gradients[0] has one tensor "
        "for each parameter.": edit("    return combined", "        return combined"),
        "This is the plain mean. How much does a row count in a small piece, and in a large one?": (
            weights("[1 / len(rows) for _ in rows]")
        ),
        "This is the plain sum. How does it change with every replica that you add?": weights(
            "[1 for _ in rows]"
        ),
        "Each gradient is weighted by its rows. What do the weights add up to?": weights("rows"),
        "With several replicas, all weights are 0 here. What does // do with a fraction?": weights(
            "[own // sum(rows) for own in rows]"
        ),
        "These are means already. Why is each divided by a number of rows?": [
            weights(f"[1 / {count} for own in rows]") for count in ("sum(rows)", "own")
        ],
        "You divide by the number of replicas. What have you added up?": weights(
            "[own / len(rows) for own in rows]"
        ),
        "This is right, but divided by the number of replicas as well. What do the weights add up "
        "to before that?": weights("[own / sum(rows) / len(rows) for own in rows]"),
        "You divide by the rows of one replica. Over which rows is the mean?": [
            weights(f"[own / {count} for own in rows]")
            for count in ("rows[0]", "max(rows)", "rows[-1]")
        ],
        "One replica's gradient is not in it. Where does your loop begin, and where does it end?": [
            weights("[own / sum(rows) for own in rows[:-1]] + [0]"),
            weights("[0] + [own / sum(rows) for own in rows[1:]]"),
        ],
        "This is one replica's own gradient. Where are the others?": [
            weights("[1] + [0] * len(rows[1:])"),
            weights("[0] * len(rows[1:]) + [1]"),
        ],
        "All replicas but the last have the same weight. Do they have the same number of rows?": (
            edit("shares =", "rows = rows[:1] * (len(rows) - 1) + rows[-1:]\n    shares =")
        ),
        f"gradients or rows were overwritten as well. {IN_PLACE_HINT}": Pattern(
            lambda obs: obs.changed_arguments, "gradient"
        ),
    },
    unchanged_hint=IN_PLACE_HINT,
    errors={
        "must match": "Two shapes do not fit together. Do you combine gradients of one parameter, "
        "and do your weights fit each shape?",
        "multiply sequence": LIST_HINT,
        "'list'": LIST_HINT,
        "stack expects each tensor": SHAPE_HINT,
        "size for first two": SHAPE_HINT,
        "NoneType": "gradients[r][p] is a gradient itself, and has no .grad.",
    },
    on_pass="the combined gradient is that of the whole batch, for uneven pieces on 1 to 4 "
    "replicas, and the replicas' own gradients are as they were",
)
