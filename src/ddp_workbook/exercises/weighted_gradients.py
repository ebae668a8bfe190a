"""Combine the gradients of uneven pieces into the gradient of the batch.

Each replica has computed the gradient of the mean loss over its own piece. `gradients[r]` lists the
gradients of replica r, one tensor for each parameter, in the same order on all replicas. `rows[r]`
is the number of rows of its piece, at least 1. Return the gradient of the mean loss over all rows
of the batch, as a list with one tensor for each parameter.

- Each tensor that you return has the shape and the dtype of that parameter's gradients.
- Parameters differ in shape, and some are float64 or float16. The largest float16 number is 65504,
  so `gradient * rows[r]` can become infinite although the result is not.
- A gradient can be infinite, as in training with float16. Then the result is infinite, not nan.
- Do not change `gradients` or `rows`.
- The tensors that you return have memory of their own, even if there is only one replica.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor

from ddp_workbook.exercises import Alone, Look, Seen, When, in_words

MINUTES = 10
HINTS = [
    "Of ten rows replica 0 has three, and replica 3 has one. What part of the batch's mean comes "
    "from each of them?",
    "A replica's mean loss stands for rows[r] of the sum(rows) rows. What share is that?",
    "For each parameter, a sum over the replicas: share times gradient. zip(*gradients) goes "
    "through the parameters, and yields the gradients of all replicas for each.",
]


def weighted_gradients(gradients: list[list[Tensor]], rows: list[int]) -> list[Tensor]:
    """The gradient of the mean over all rows, by parameter, from the replicas' own means."""
    ### BEGIN SOLUTION
    shares = [own / sum(rows) for own in rows]  # a product with rows may be too large for float16
    combined = []
    for of_one in zip(*gradients, strict=True):  # the replicas' gradients of one parameter
        counted = zip(shares, of_one, strict=True)
        combined.append(sum(share * gradient for share, gradient in counted))
    return combined
    ### END SOLUTION


Case = tuple[int, list[int]]  # the number of the call, rows
LARGE = 7  # the number of the call in which float16 numbers are large
CASES = [[3, 3, 3, 1], [6, 4], [2, 5, 1, 4], [10], [2, 4, 4], [5, 5], [3, 3, 3, 1], [3, 2, 4]]
FACTORS = [5, -7, 2.5, 1]  # by replica: typical mistakes differ from the truth and from each other
KINDS = [  # of each parameter
    ((2,), torch.float32),
    ((2, 3), torch.float32),
    ((), torch.float16),
    ((3,), torch.float64),
    ((4, 2), torch.float32),
]


def given(case: Case) -> tuple[list[list[Tensor]], list[int]]:
    """Gradients with fractions, of both signs and not all contiguous; in call 2 one is infinite."""
    call, rows = case
    gradients = [
        [gradient(call, replica, number) for number in range(len(KINDS))]
        for replica in range(len(rows))
    ]
    if call == 2:
        gradients[1][1][0, 1] = torch.inf
    return gradients, list(rows)


def gradient(call: int, replica: int, number: int) -> Tensor:
    """A replica's gradient of one parameter."""
    shape, dtype = KINDS[number]
    numbers = torch.arange(1.0, 1 + prod(shape), dtype=torch.float64) + number + call / 4
    numbers = numbers * FACTORS[replica] + replica
    if dtype == torch.float16:  # of one sign: its rounding stays small
        numbers = numbers.abs() + (20000 + 10000 * replica) * (call == LARGE)
    return numbers.to(dtype).reshape(shape[::-1]).permute(list(range(len(shape)))[::-1])


def weighted(weights: Callable[[list[int]], list[float]]) -> Callable[[Case], dict[str, Tensor]]:
    """The combination with these weights, which depend on the rows."""

    def combined(case: Case) -> dict[str, Tensor]:
        gradients, rows = given(case)
        return named(
            [
                sum(w * one.double() for w, one in zip(weights(rows), of_one, strict=True)).to(
                    dtype
                )
                for of_one, (_, dtype) in zip(zip(*gradients, strict=True), KINDS, strict=True)
            ]
        )

    return combined


def named(combined: Any) -> Any:
    """A list as a dict by parameter."""
    if not isinstance(combined, list | tuple):
        return f"a {type(combined).__name__}" if isinstance(combined, dict) else combined
    return {f"parameter {number}": one for number, one in enumerate(combined)}


def kinds(combined: Any) -> Any:
    """A dict of tensors as a dict with the dtype and shape of each."""
    if not isinstance(combined, dict):
        return combined
    return {
        part: f"is {str(one.dtype).removeprefix('torch.')} {tuple(one.shape)}"
        if isinstance(one, Tensor)
        else f"is {in_words(one)}"
        for part, one in combined.items()
    }


def kinds_in_words(value: Any) -> str:
    """What a look at kinds shows: those of one parameter, or the length of a list."""
    if isinstance(value, dict):
        return f"a list of length {len(value)}"
    return value if isinstance(value, str) else in_words(value)


def result_and_memory(combined: Any, gradients: list[list[Tensor]], rows: list[int]) -> dict:
    """What has come back, and the parameters for which that is memory of a replica's gradient."""
    taken = {one.untyped_storage().data_ptr() for own in gradients for one in own}
    tensors = combined if isinstance(combined, list | tuple) else []
    tensors = [one if isinstance(one, Tensor) else torch.empty(0) for one in tensors]
    return {
        "combined": named(combined),
        "shared": [n for n, one in enumerate(tensors) if one.untyped_storage().data_ptr() in taken],
    }


def running(rows: list[int]) -> list[float]:
    """The weights of a mean that moves to each further replica by its share in all rows."""
    weights = [1.0]
    for own in rows[1:]:
        share = own / sum(rows)
        weights = [*[one * (1 - share) for one in weights], share]
    return weights


def only_the_last_differs(rows: list[int]) -> list[float]:
    """The weights, if all but the last had as many rows as the first."""
    believed = [rows[0]] * (len(rows) - 1) + rows[-1:]
    return [own / sum(believed) for own in believed]


def overflows(seen: Seen) -> bool:
    """Whether something is infinite that is finite where the numbers stay small on the way."""
    pairs = zip(seen.value.values(), seen.right.values(), strict=True)
    return any(bool((one.isinf() & right.isfinite()).any()) for one, right in pairs)


def subtracts(seen: Seen) -> bool:
    """Whether something is nan that is infinite where gradients are only multiplied and added."""
    pairs = zip(seen.value.values(), seen.right.values(), strict=True)
    return any(bool((one.isnan() & right.isinf()).any()) for one, right in pairs)


def called(case: Case, part: str) -> str:
    """The call in words, with the gradients of the parameter that the page is about."""
    gradients, rows = given(case)
    text = f"weighted_gradients(gradients, {rows})"
    if not part:
        return text
    number = int(part.split()[1])
    each = [f"{in_words(own[number])} on replica {r}" for r, own in enumerate(gradients)]
    return f"{text}, where {part} has {', '.join(each)}"


IN_PLACE = (
    "gradients or rows were overwritten as well. Which line works in place? detach shares memory, "
    "and +=, *=, names that end in _ and an index before = write into it."
)
A_LIST = "gradients, gradients[r] and rows are plain lists. Which of them do you compute with?"
SHAPES = "Parameters have two dimensions, one, or none. Does this line suit all of them?"
DTYPES = "The gradients of a parameter are float64, float32 or float16. Does this line suit all?"
CHECK = Alone(
    cases=list(enumerate(CASES)),
    called=called,
    given=given,
    observe=result_and_memory,
    looks=[
        Look(
            of=lambda seen: kinds(seen.came["combined"]),
            right=lambda case: kinds(weighted(lambda rows: rows)(case)),
            mistakes={
                "What does your loop go through, and does it reach the end? gradients[0] has one "
                "tensor for each parameter.": When(
                    lambda seen: isinstance(seen.value, dict) and len(seen.value) != len(KINDS)
                ),
                "Is this a list, in which each parameter has its place?": When(
                    lambda seen: not isinstance(seen.value, dict) and seen.value is not None
                ),
                "All come back in the same dtype. Which of your lines makes a tensor of one dtype, "
                "or joins several, as cat does?": When(
                    lambda seen: len({kind.split()[1] for kind in (seen.value or {}).values()}) == 1
                ),
            },
            otherwise="Each parameter has its own dtype and shape. Which line decides them here? A "
            "tensor of weights has a dtype, too.",
            came="{part} {value}",
            required="{part} {right}",
            words=kinds_in_words,
        ),
        Look(
            of=lambda seen: seen.came["combined"],
            right=weighted(lambda rows: [own / sum(rows) for own in rows]),
            mistakes={
                "This is the plain mean. How much does a row count in a small piece, and in a "
                "large one?": weighted(lambda rows: [1 / len(rows) for _ in rows]),
                "This is the plain sum. How does it change with every replica that you add?": (
                    weighted(lambda rows: [1 for _ in rows])
                ),
                "Each gradient is weighted. What do the weights add up to?": (
                    weighted(lambda rows: rows)
                ),
                "With several replicas, all weights are 0 here. What does // do with a fraction?": (
                    weighted(lambda rows: [own // sum(rows) for own in rows])
                ),
                "These are means already. Why is each divided by the number of all rows?": (
                    weighted(lambda rows: [1 / sum(rows) for _ in rows])
                ),
                "These are means already. Why is each divided by its own number of rows?": (
                    weighted(lambda rows: [1 / own for own in rows])
                ),
                "You divide by the number of replicas. What have you added up?": (
                    weighted(lambda rows: [own / len(rows) for own in rows])
                ),
                "This is right, but divided by the number of replicas as well.": (
                    weighted(lambda rows: [own / sum(rows) / len(rows) for own in rows])
                ),
                "You divide by the rows of replica 0. Of which rows is the mean?": (
                    weighted(lambda rows: [own / rows[0] for own in rows])
                ),
                "You divide by the largest number of rows. What do the weights add up to then?": (
                    weighted(lambda rows: [own / max(rows) for own in rows])
                ),
                "You divide by the rows of the last replica. Of which rows is the mean?": (
                    weighted(lambda rows: [own / rows[-1] for own in rows])
                ),
                "The last replica's gradient is not in it. Where does your loop end?": (
                    weighted(lambda rows: [own / sum(rows) for own in rows[:-1]] + [0])
                ),
                "Replica 0's gradient is not in it. Where does your loop begin?": (
                    weighted(lambda rows: [0] + [own / sum(rows) for own in rows[1:]])
                ),
                "This is replica 0's own gradient. Where are the others?": (
                    weighted(lambda rows: [1] + [0] * len(rows[1:]))
                ),
                "This is the last replica's own gradient. Where are the others?": (
                    weighted(lambda rows: [0] * len(rows[1:]) + [1])
                ),
                "Here the number of a replica decides its weight. What does that number say "
                "about its rows?": weighted(
                    lambda rows: [r / sum(range(len(rows) + 1)) for r, _ in enumerate(rows, 1)]
                ),
                "All replicas but the last have the same weight. Do they have the same number of "
                "rows?": weighted(only_the_last_differs),
                "This is a running mean. What share of the rows seen so far does a piece have?": (
                    weighted(running)
                ),
                "Infinite, although the mean is finite. How large do the numbers get on the way, "
                "and what is the largest float16 number?": When(overflows),
                "nan, although the mean is infinite. Which line subtracts? inf - inf is nan.": When(
                    subtracts
                ),
                IN_PLACE: When(lambda seen: seen.changed),
            },
            otherwise="How much weight does each replica have here, and what do the weights add "
            "up to?",
            came="{value} for {part}",
            required="{right}",
        ),
        Look(
            of=lambda seen: seen.came["shared"],
            right=[],
            mistakes={IN_PLACE: When(lambda seen: seen.changed)},
            otherwise="Changing the result changes that replica's gradient. Where do your lines "
            "make no new tensor? detach, view and slices share memory.",
            came="the right numbers, in memory of a replica's gradient, for parameters {value}",
            required="tensors with memory of their own, whatever the number of replicas",
        ),
    ],
    keeps="Which line works in place? Look at +=, *=, names that end in _, and = after an index.",
    errors={
        "must match": "gradients[r][p] is of parameter p on replica r. Do you add those of one p?",
        "multiply sequence": A_LIST,
        "'list'": A_LIST,
        "dtype": DTYPES,
        "Double": DTYPES,
        "Half": DTYPES,
        "stack expects each tensor": SHAPES,
        "size for first two": SHAPES,
        "NoneType": "gradients[r][p] is a gradient itself, and has no .grad.",
        "process group": "There are no ranks here: gradients holds what all replicas computed.",
    },
    proves="the combined gradient is that of the whole batch, for uneven pieces on 1 to 4 "
    "replicas, in three dtypes, and the replicas' own gradients are as they were",
)
