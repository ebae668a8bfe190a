"""Combine the gradients of uneven pieces into the gradient of the batch.

Each replica has computed the gradient of the mean loss over the rows of its own piece. Of replica r
you get rows[r], the number of its rows, at least one, and gradients[r], a list with the gradient of
each parameter, the same parameters in the same order for all. Return the gradient of the mean loss
over all rows of the batch: a list with one tensor for each parameter, of the shape and the dtype
that its gradients have. Parameters differ in shape, and may differ in dtype.

What you are given stays as it is. What you return has memory of its own, also where there is only
one replica: who changes it later must not change a replica's gradient with it.
"""

import math
import operator
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ddp_workbook.exercises import Attempt, NotYet, attempt_alone, in_words

HINTS = [
    "Of ten rows replica 0 has three, and replica 3 has one. Which part of the batch's mean comes "
    "from each of them?",
    "A replica's mean loss counts rows[r] times of sum(rows). Its gradient counts as often.",
    "For each parameter, a sum over the replicas: share times gradient. zip(*gradients) goes "
    "through the parameters, and gives for each the gradients of all replicas.",
]

A_LIST = "gradients, gradients[r] and rows are plain lists. Which of them do you compute with?"
SHAPES = "Parameters have two dimensions, one, or none. Does this line suit all of them?"
DTYPES = "One parameter's gradients are float64, the others' float32. Does this line suit both?"
FOR_ERRORS = {
    "must match": "gradients[r][p] is parameter p's on replica r. Do you add up those of one p?",
    "multiply sequence": A_LIST,
    "'list'": A_LIST,
    "dtype": DTYPES,
    "Double": DTYPES,
    "stack expects each tensor": SHAPES,
    "size for first two": SHAPES,
    "NoneType": "gradients[r][p] is a gradient itself, and has no .grad.",
    "process group": "There are no ranks here: gradients holds what all replicas have computed.",
}
Case = tuple[list[list[Tensor]], list[int], list[Tensor]]  # gradients, rows, what is right
SIZES = (1, 2, 3, 4)  # replicas
ROWS = {1: [10], 2: [6, 4], 3: [4, 4, 2], 4: [3, 3, 3, 1]}  # tenths: simple numbers in the verdict
OTHER_ROWS = [2, 5, 1, 4]  # for as many replicas as there are
WRITTEN_OVER = (
    "what was given has been written over: a tensor, or one of the lists",
    "the replicas' gradients, the lists that hold them, and rows as they were",
    "Which line works in place? Look at +=, at *=, at names that end in _, at = after an index.",
)
SHARED = (
    "the right numbers, in memory that belongs to a replica's gradient",
    "tensors with memory of their own, whatever the number of replicas",
    "Who changes the result changes that replica's gradient. When do your lines make nothing new?",
)
UNKNOWN = "How much does each replica count in this, and how much do all together?"
PLAIN_MEAN = "This is the plain mean. How much does a row count in a small piece, and in a large?"
close = partial(torch.allclose, rtol=1e-5, atol=1e-6)  # equal up to rounding
FACTORS = [5, 7, 2, 1]  # with ROWS, typical mistakes differ from the truth and from each other


def weighted_gradients(gradients: list[list[Tensor]], rows: list[int]) -> list[Tensor]:
    """The gradient of the mean over all rows, by parameter, from the replicas' own means."""
    ### BEGIN SOLUTION
    combined = []
    for of_one in zip(*gradients, strict=True):  # the replicas' gradients of one parameter
        counted = zip(rows, of_one, strict=True)
        combined.append(sum(own * gradient for own, gradient in counted) / sum(rows))
    return combined
    ### END SOLUTION


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Compare with small numbers, then with autograd's gradient of the whole batch."""
    attempt_alone(attempt, combine_and_compare, case=sorted(sizes, key=lambda n: (n == 1, n)))
    return (
        "the combined gradient is that of the whole batch, for uneven pieces on 1 to 4 replicas, "
        "and the replicas' own gradients are as they were"
    )


def combine_and_compare(weighted_gradients: Any, sizes: list[int]) -> None:
    """In the process of the attempt: call it for each number of replicas."""
    for case in (small_numbers, of_a_model):
        for size in sizes:
            gradients, rows, right = case(size)
            before, marks = [[one.clone() for one in own] for own in gradients], marks_of(gradients)
            combined = weighted_gradients(gradients, given := list(rows))
            called = f"weighted_gradients(gradients, {rows})"
            refuse_other_forms(called, combined, right)
            changed = marks_of(gradients) != marks or given != rows
            refuse_other_values(called, combined, (before, rows, right), changed)
            memory = [one.untyped_storage().data_ptr() for own in gradients for one in own]
            if any(one.untyped_storage().data_ptr() in memory for one in combined):
                raise NotYet(called, *SHARED)


def small_numbers(size: int) -> Case:
    """Gradients of several shapes and dtypes of which the combination is whole numbers."""
    rows, base = ROWS[size], []
    for number, shape in enumerate([(2,), (2, 3), (), (4,), (3, 2)], start=1):
        counting = torch.arange(number, number + math.prod(shape)).reshape(shape) * 10
        base.append(counting.to(torch.float64 if number == 5 else torch.float32))
    factor = sum(map(operator.mul, FACTORS, rows)) / sum(rows)
    gradients = [[one * own for one in base] for own in FACTORS[:size]]
    return gradients, rows, [one * factor for one in base]


def of_a_model(size: int) -> Case:
    """What autograd gives, for each piece of a batch and for all of it."""
    rows = OTHER_ROWS[:size]
    images = torch.arange(3.0 * sum(rows)).reshape(-1, 3).sin()
    labels = torch.arange(sum(rows)) % 4
    pieces = zip(images.split(rows), labels.split(rows), strict=True)
    return [mean_gradient(*piece) for piece in pieces], rows, mean_gradient(images, labels)


def mean_gradient(images: Tensor, labels: Tensor) -> list[Tensor]:
    """The gradient of the mean loss over these rows, for the weight and the bias of a layer."""
    weight = torch.arange(12.0).reshape(3, 4).cos().requires_grad_()
    bias = torch.ones(4, requires_grad=True)
    loss = F.cross_entropy(images @ weight + bias, labels)
    return [one.clone() for one in torch.autograd.grad(loss, [weight, bias])]


def marks_of(gradients: list[list[Tensor]]) -> list[list[tuple]]:
    """Which tensors are in the lists, what is in them, and how often they were written into."""
    return [[(id(one), one._version, one.tolist()) for one in own] for own in gradients]


def kind_of(value: Any) -> str:
    """A tensor as its dtype and shape."""
    if isinstance(value, Tensor):
        return f"a tensor {str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    return f"{in_words(value)}, which is no tensor"


def refuse_other_forms(called: str, combined: Any, right: list[Tensor]) -> None:
    """Raise NotYet if it is no list with a tensor for each parameter."""
    required = f"a list of {len(right)} tensors, one for each parameter"
    if not isinstance(combined, list | tuple):
        look = "Do you return a list, in which each parameter has its place?"
        kind = "None" if combined is None else f"an object of type {type(combined).__name__}"
        raise NotYet(called, kind, required, look)
    if len(combined) != len(right):
        look = "gradients[0] has a tensor for each. What does your loop go through, and to its end?"
        raise NotYet(called, f"a list of length {len(combined)}", required, look)
    for number, (tensor, wanted) in enumerate(zip(combined, right, strict=True)):
        if kind_of(tensor) != kind_of(wanted):
            came_back = f"for parameter {number}: {kind_of(tensor)}"
            look = "Each parameter has its own shape and dtype. Which line decides them here?"
            look = look if isinstance(tensor, Tensor) else "Which line makes something else of it?"
            raise NotYet(called, came_back, f"{kind_of(wanted)}, as its gradients are", look)


def refuse_other_values(called: str, combined: list[Tensor], case: Case, changed: bool) -> None:
    """Raise NotYet for a wrong gradient, and if the replicas' gradients have `changed`."""
    before, rows, right = case
    for number, (tensor, wanted) in enumerate(zip(combined, right, strict=True)):
        own = [gradients[number] for gradients in before]
        thoughts = [text for value, text in typical(own, rows) if close(tensor, value)]
        if close(tensor, wanted) or (changed and not thoughts):
            continue
        each = ", ".join(f"{in_words(one)} on replica {r}" for r, one in enumerate(own))
        raise NotYet(
            f"{called}, where parameter {number} has {each}",
            f"{in_words(tensor)} for parameter {number}",
            in_words(wanted),
            [*thoughts, UNKNOWN][0],
        )
    if changed:
        raise NotYet(called, *WRITTEN_OVER)


def typical(own: list[Tensor], rows: list[int]) -> Iterator[tuple[Tensor, str]]:
    """What typical mistakes give, and the thought behind each."""
    size, total = len(own), sum(rows)
    parts, inverse = [*map(operator.mul, rows, own)], sum(map(operator.truediv, own, rows))
    yield sum(own) / size, PLAIN_MEAN
    yield sum(own), "This is the plain sum. Would it not grow with every replica that is added?"
    yield sum(parts), "Each gradient is weighted. What do the weights add up to?"
    for divided in (sum(own) / total, inverse, inverse / size):
        yield divided, "These are means already. Why is each divided by a number of rows?"
    yield sum(parts) / size, "You divide by the number of replicas. What have you added up?"
    yield sum(parts) / total / size, "This is right, but divided by the number of replicas as well."
    for replica, part in enumerate(parts):
        by_one = f"You divide by the rows of replica {replica}. Of which rows is the mean?"
        yield sum(parts) / rows[replica], by_one
        for divisor in (total, max(1, total - rows[replica])):
            yield (sum(parts) - part) / divisor, f"Replica {replica}'s gradient is not in it."
        yield own[replica], f"This is replica {replica}'s own gradient. Where are the others?"
    for numbers in (range(size), range(1, size + 1)):
        by_number = sum(map(operator.mul, numbers, own)) / max(1, sum(numbers))
        yield by_number, "A replica counts by its number. What does that say about its rows?"
    yield 0 * own[0], "Nothing but zeros. Which of your lines gives the first of them?"
