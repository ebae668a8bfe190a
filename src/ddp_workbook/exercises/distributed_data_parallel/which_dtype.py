"""Say which format each of ten values has under autocast.

`x` and `w` are float32 tensors [8, 8] on the same device, `w` is a parameter, and `labels` is int64
[8]. These lines run in order, inside `with torch.autocast(x.device.type, torch.bfloat16):`

| value | line |
|---|---|
| **a** | `a = x @ w` |
| **b** | `b = x + w` |
| **c** | `c = torch.relu(a)` |
| **d** | `d = a + x` |
| **e** | `e = torch.cat([a, x])` |
| **f** | `f = F.cross_entropy(a, labels)` |
| **g** | `g = F.mse_loss(a, c)` |
| **h** | `h = x.double() @ w.double()` |
| **i** | `i = a.argmax(dim=1)` |
| **j** | `f.backward()`, then `j = w.grad` |

Return a dict with the name of a format for each letter.

- The names are float32, bfloat16, float16, float64 and int64.
- The answers are those of a CPU. For these ten lines, an NVIDIA GPU gives the same.
"""

import torch
import torch.nn.functional as F

from ddp_workbook.judging import ANY, Comparison, SingleProcessCheck
from ddp_workbook.judging.multiple_choice import (
    all_answered,
    choices_by_letter,
)

MINUTES = 7
HINTS = [
    "Three questions, in this order. Is it a matrix product? Is it a loss? If neither: which "
    "formats do its inputs have?",
    "An operation that is on none of autocast's lists takes what it is given. If one input has 16 "
    "bits and the other 32, the result has room for both.",
    "autocast converts inputs of float32 for a while. It changes no parameter, and nothing that "
    "has 64 bits.",
]
LETTERS = "abcdefghij"
NAMES = {  # what is accepted for a format
    **{name: name for name in ("float32", "bfloat16", "float16", "float64", "int64")},
    **{"float": "float32", "half": "float16", "double": "float64", "long": "int64"},
}
CALL = "which_dtype()"


def which_dtype() -> dict[str, str]:
    """For each letter, the name of the format."""
    ### BEGIN SOLUTION
    return {
        "a": "bfloat16",
        "b": "float32",
        "c": "bfloat16",
        "d": "float32",
        "e": "float32",
        "f": "float32",
        "g": "float32",
        "h": "float64",
        "i": "int64",
        "j": "float32",
    }
    ### GIVEN
    # return {  # TODO: a name in place of each None
    #     "a": None,
    #     "b": None,
    #     "c": None,
    #     "d": None,
    #     "e": None,
    #     "f": None,
    #     "g": None,
    #     "h": None,
    #     "i": None,
    #     "j": None,
    # }
    ### END SOLUTION


def measure_dtypes() -> dict[str, str]:
    """The formats, found by running the ten lines on a CPU."""
    x, w = torch.rand(8, 8), torch.rand(8, 8, requires_grad=True)
    labels = torch.arange(8)
    with torch.autocast("cpu", torch.bfloat16):
        a = x @ w
        c = torch.relu(a)
        values = [a, x + w, c, a + x, torch.cat([a, x]), F.cross_entropy(a, labels)]
        values += [F.mse_loss(a, c), x.double() @ w.double(), a.argmax(dim=1)]
        values[5].backward()
        values.append(w.grad)
    return {letter: str(value.dtype)[6:] for letter, value in zip(LETTERS, values, strict=True)}


def parse_name(name: str) -> str:
    """The format of this name. Raises ValueError if it is none."""
    word = name.strip().lower().removeprefix("torch.")
    if word not in NAMES:
        raise ValueError(name)
    return NAMES[word]


TWO_FORMATS = "One input has 16 bits, the other 32. Which format has room for both?"
A_LOSS = "This is a loss. Would a mean of many small numbers be safe in 16 bits?"
HINTS_BY_LETTER = {
    "a": "What is autocast for? It makes one kind of operation faster, above all others, by the "
    "format that the `with` line names.",
    "b": "Both inputs have 32 bits. Does an addition get faster with fewer digits?",
    "c": "This one is on none of autocast's lists. What is it given?",
    **dict.fromkeys("de", TWO_FORMATS),
    **dict.fromkeys("fg", A_LOSS),
    "h": "autocast converts float32, and nothing that is larger. What are the inputs here?",
    "i": "What does this one return: numbers, or places of numbers?",
    "j": "A gradient has the format of its parameter. Has autocast changed the parameter?",
}
CHECK = SingleProcessCheck(
    cases=[()],
    call_text=CALL,
    observe=lambda answer: choices_by_letter(
        CALL, answer, LETTERS, f"one of {', '.join(NAMES)}", parse_name
    ),
    compare={
        "format": Comparison(
            HINTS_BY_LETTER,
            lambda case: measure_dtypes(),
            lambda obs: {letter: name or ANY for letter, name in obs.actual.items()},
            required="another format",
        ),
        "answers": all_answered(
            LETTERS,
            "Which formats do its inputs have, and is the operation on one of autocast's lists?",
        ),
    },
    on_pass="each of the 10 names is what torch gives when it runs the line",
)
