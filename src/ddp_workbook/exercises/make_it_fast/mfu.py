"""What is the MFU of a training run: which share of their peak do its GPUs reach?

The model has `parameters` parameters. Each token needs 6 operations for each of them: 2 in forward,
4 in backward. Attention needs 12 · `layers` · `width` · `length` more, where `length` is the
sequence length. Parts of the forward pass are computed a second time in backward to save memory;
the model does not need that, so it does not count.

All `gpus` GPUs together train on `tokens_per_second` tokens a second. One GPU's peak is `peak`
operations a second.

Return the share as a float, such as 0.4.
"""

import random

from ddp_workbook.judging import Comparison, Pattern, SingleProcessCheck, body, edit, in_words
from ddp_workbook.judging.forms import number

MINUTES = 5
HINTS = [
    "How many operations does one token need? Then how many a second are needed, and how many "
    "could all GPUs do?",
    "The 12 is multiplied by three numbers. Is tokens_per_second of one GPU, or of all, and peak?",
]


def mfu(
    parameters: float,
    layers: int,
    width: int,
    length: int,
    tokens_per_second: float,
    gpus: int,
    peak: float,
) -> float:
    """Model FLOPs utilization: the share of the peak of all GPUs, 0 to 1."""
    ### BEGIN SOLUTION
    per_token = 6 * parameters + 12 * layers * width * length
    return per_token * tokens_per_second / (gpus * peak)
    ### END SOLUTION


CASES = [  # all arguments, in order
    (6.7e9, 32, 4096, 2048, 85_144, 8, 989e12),
    (7.5e9, 32, 4096, 8192, 46_096, 8, 989e12),
    (1.3e9, 24, 2048, 2048, 2_841_728, 64, 989e12),
    (124e6, 12, 768, 1024, 150_000, 1, 312e12),
]


def random_args(rng: random.Random) -> tuple:
    """A run of any size that reaches 10 to 60 % of the peak."""
    parameters, layers, width = rng.uniform(1e6, 1e11), rng.randint(1, 100), rng.randint(64, 8192)
    length, gpus, peak = rng.randint(1, 100_000), rng.randint(1, 1000), rng.choice([312e12, 989e12])
    per_token = 6 * parameters + 12 * layers * width * length
    tokens_per_second = rng.uniform(0.1, 0.6) * gpus * peak / per_token
    return parameters, layers, width, length, tokens_per_second, gpus, peak


OPERATIONS = "6 * parameters + 12 * layers * width * length"
TOTAL_PEAK = "(gpus * peak)"
CHECK = SingleProcessCheck(
    cases=CASES,
    random_args=random_args,
    compare=Comparison(
        "Write down the operations a token, those a second, and the peak of all GPUs.",
        select=lambda obs: number(obs.actual),
        actual=lambda obs: in_words(obs.actual),
    ),
    mistakes={
        "Attention's operations are missing. How many does it add for each layer?": edit(
            OPERATIONS, "6 * parameters"
        ),
        "Attention is missing, and the tokens of all GPUs are divided by the peak of one.": (
            edit(OPERATIONS, "6 * parameters") + edit(TOTAL_PEAK, "peak")
        ),
        "The attention of one layer is in this. How many are there?": edit(
            "layers * width", "width"
        ),
        "Is every token compared with the others in its sequence?": edit("width * length", "width"),
        "Attention's operations are for one token here. Is length in them once?": edit(
            "width * length", "width * length**2"
        ),
        "This counts the forward pass alone. How much more does backward need?": [
            edit(OPERATIONS, "2 * parameters + 4 * layers * width * length"),
            edit(OPERATIONS, "2 * parameters + 12 * layers * width * length"),
        ],
        "This is backward alone. What does forward need?": edit(
            OPERATIONS, "4 * parameters + 8 * layers * width * length"
        ),
        "This also counts what is computed a second time. Does the model need it?": [
            edit(OPERATIONS, "8 * parameters + 16 * layers * width * length"),
            edit(OPERATIONS, "8 * parameters + 12 * layers * width * length"),
        ],
        "Attention's forward is in this, and its backward is not.": edit("12 *", "4 *"),
        "Of how many GPUs is tokens_per_second, and of how many is the peak that you divide by?": (
            edit(TOTAL_PEAK, "peak")
        ),
        "tokens_per_second is of all GPUs together. Is it multiplied by their number?": edit(
            TOTAL_PEAK, "peak * gpus"
        ),
        "This is a percentage. A share is at most 1.": edit(
            "return per_token", "return 100 * per_token"
        ),
        "These are operations a second. Which share of the peak are they?": [
            edit(f" / {TOTAL_PEAK}", ""),
            edit(f" / {TOTAL_PEAK}", " / gpus"),
        ],
        "This is the inverse of the share.": body("""
            per_token = 6 * parameters + 12 * layers * width * length
            return gpus * peak / (per_token * tokens_per_second)
        """),
        "This is no number. Which of your lines returns it?": Pattern(
            lambda obs: obs.actual is not None and obs.value is None
        ),
        "Is it rounded? Keep the digits.": Pattern(
            lambda obs: any(obs.value == round(obs.expected, n) for n in range(6))
        ),
    },
    on_pass="the share of four training runs, on 1 to 64 GPUs",
)
