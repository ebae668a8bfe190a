"""From a few timings, predict how well training scales to any number of ranks.

`timings` are all-reduces that were measured alone: (ranks, bytes, seconds). They follow the formula
of a ring exactly: S bytes on N ranks take 2 (N - 1) alpha + 2 (N - 1) / N S beta seconds. Some rows
repeat; at least two differ enough to determine both numbers. You may use NumPy and torch, and you
need no process group. Do not change the lists.

On one rank, a step takes `compute` seconds and sends nothing. On N = `ranks` ranks, it also makes
one all-reduce after the other: `buckets` has the number of bytes of each. A share `hidden` of a
rank's compute, such as 0.5, hides communication: that many seconds of all the all-reduces together
cost nothing, and the rest comes on top. Return a dict with four numbers:

- `"alpha"`: seconds per message.
- `"beta"`: seconds per byte.
- `"weak"`: the efficiency of weak scaling, in which each rank computes as much as the one rank did,
  so that N ranks do N times the work. It is 1 if a step takes no longer than on one rank.
- `"strong"`: the efficiency of strong scaling, in which N ranks share the one rank's work equally.
  It is 1 if a step takes an N-th of the time.
"""

from typing import Any, NamedTuple

import numpy as np

from ddp_workbook.judging import Comparison, Edit, Observation, Pattern, SingleProcessCheck, edit

MINUTES = 20
HINTS = [
    "The seconds are a sum of two columns: 2 (N - 1) times alpha, and 2 (N - 1) / N S times beta. "
    "Which function of NumPy solves more equations than there are unknowns?",
    "Write a function for the step: it takes the seconds of compute on each rank and adds the part "
    "of the communication that is not hidden. Weak and strong call it with different seconds.",
    "An efficiency is the time of one rank over the time of N ranks, for work of the same kind. In "
    "strong scaling the ideal is an N-th of the time.",
]


def predict_scaling(
    timings: list[tuple[int, int, float]],
    compute: float,
    buckets: list[int],
    hidden: float,
    ranks: int,
) -> dict[str, float]:
    """Return alpha and beta in seconds, and both efficiencies on `ranks` ranks."""
    ### BEGIN SOLUTION
    n, size, seconds = np.array(timings).T
    columns = np.stack([2 * (n - 1), 2 * (n - 1) / n * size], axis=1)
    alpha, beta = np.linalg.lstsq(columns, seconds, rcond=None)[0]
    messages = 2 * (ranks - 1)
    communication = sum(messages * (alpha + beta * bucket / ranks) for bucket in buckets)

    def step(compute: float) -> float:
        return compute + max(0.0, communication - hidden * compute)

    weak = compute / step(compute)
    strong = compute / (ranks * step(compute / ranks))
    return {"alpha": alpha, "beta": beta, "weak": weak, "strong": strong}
    ### END SOLUTION


TOLERANCE = 1e-4  # relative tolerance: there are several ways to fit


class Timings(NamedTuple):
    """A call, with the alpha and beta to find; `messages` has (ranks, bytes) of each timing."""

    alpha: float
    beta: float
    messages: list[tuple[int, int]]
    compute: float
    buckets: list[int]
    hidden: float
    ranks: int


KIB = 1024
CASES = [
    # some of it is hidden; repeated rows first, and last
    Timings(
        45e-6, 0.8e-9, [(2, KIB)] * 2 + [(4, 2**20), (3, 2**22), (2, KIB)],
        0.045, [7_100_000, 26_300_000, 20_900_000], 0.55, 16,
    ),
    Timings(18e-6, 2.5e-9, [(8, 4 * KIB), (2, 2**22)], 0.21, [60_000_000], 0.25, 6),  # one bucket
    Timings(7e-6, 0.04e-9, [(4, KIB), (4, 2**24), (4, 2**20)], 0.3, [25_000_000] * 4, 0.6, 8),
    Timings(90e-6, 1.1e-9, [(2, 2**20), (3, 2**20), (8, 2**20)], 0.07, [1_000_000] * 30, 0.5, 1),
    Timings(
        30e-6, 0.3e-9, [(2, 2**20), (4, 2**21), (16, 1_500_000), (5, 1_500_000)],
        0.4, [3_500_000] * 9, 0.0, 1024,
    ),  # the first two, and the smallest and the largest, have the same S / N
    # all is hidden in weak scaling, not in strong; sorted, both ends have the same S / N
    Timings(
        25e-6, 0.6e-9, [(5, 3000), (8, 2**22), (2, 2**20)],
        0.25, [2_600_000, 26_000_000], 0.65, 12,
    ),
]  # fmt: skip


def make_args(case: Timings) -> tuple:
    """The arguments of a call; its lists are new ones."""
    timings = [
        (n, size, 2 * (n - 1) * case.alpha + 2 * (n - 1) / n * size * case.beta)
        for n, size in case.messages
    ]
    return timings, case.compute, [*case.buckets], case.hidden, case.ranks


def near(actual: Any, expected: Any) -> bool:
    """Numbers up to TOLERANCE."""
    return abs(actual - expected) <= TOLERANCE * abs(expected)


def has_lost_digits(obs: Observation) -> bool:
    """Whether the value has two digits, is right but for the last ones, or is lost: about 0."""
    has_two_digits = obs.value == float(f"{obs.value:.1e}")
    is_close = abs(obs.value - obs.expected) <= 0.005 * obs.expected
    return has_two_digits or is_close or abs(obs.value) < 1e-6 * obs.expected


MESSAGES, DATA = "np.stack([2 * (n - 1), ", "2 * (n - 1) / n * size"
BUCKET_TIME, BUCKET_LOOP = "messages * (alpha + beta * bucket / ranks)", "for bucket in buckets"
EXPOSED = "max(0.0, communication - hidden * compute)"


def columns(messages: str, data: str = DATA) -> Edit:
    """Other columns for the fit."""
    return edit(MESSAGES, f"np.stack([{messages}, ", DATA, data)


def fit(lines: str) -> Edit:
    """Another way from the columns to alpha and beta."""
    return edit("alpha, beta = np.linalg.lstsq(columns, seconds, rcond=None)[0]", lines)


def edit_value(key: str, value: str) -> Edit:
    """Another number under this key."""
    return edit(f'"{key}": {key}', f'"{key}": {value}')


def only_strong(line: str) -> Edit:
    """A line that is in force for strong scaling alone."""
    return edit("    strong =", f"    {line}\n    strong =")


CHECK = SingleProcessCheck(
    cases=CASES,
    make_args=make_args,
    compare={
        "form": "",
        "alpha": Comparison(
            "By what are alpha and beta multiplied in each timing?",
            required="{expected} s",
            equal=near,
        ),
        "beta": Comparison(
            "alpha is right. What is beta the price of?", required="{expected} s a byte", equal=near
        ),
        "weak": Comparison(
            "Add up the seconds of a step on N ranks: compute, and what is not hidden. Then "
            "divide.",
            equal=near,
        ),
        "strong": Comparison(
            "How many seconds does each of N ranks compute, and how many of them hide "
            "communication?",
            equal=near,
        ),
    },
    mistakes={
        "A ring sends 2 (N - 1) messages, one after the other. How many does the column of alpha "
        "count?": [
            columns("n - 1"),
            columns("n - 1", "(n - 1) / n * size"),
            columns("1 + 0 * n"),
            columns("2 * n"),
            columns("2 * np.log2(n)"),
        ],
        "A ring sends 2 (N - 1) messages of S / N bytes. How many bytes are in the column of "
        "beta?": [
            columns("2 * (n - 1)", "size"),
            columns("2 * (n - 1)", "2 * (n - 1) * size"),
            columns("2 * (n - 1)", "(n - 1) / n * size"),
        ],
        "These are all the seconds of the smallest message, for its latency alone. It has bytes, "
        "too: how can you use all rows?": fit("""small, large = size.argmin(), size.argmax()
    alpha = seconds[small] / columns[small, 0]
    beta = (seconds - alpha * columns[:, 0])[large] / columns[large, 1]"""),
        "Only rows with one N were used, and they may all be the same measurement. How can you use "
        "the others?": [
            edit("columns, seconds", "columns[n == n[0]], seconds[n == n[0]]"),
            fit("""beta, latency = np.polyfit(*np.c_[columns[:, 1], seconds][n == n[0]].T, 1)
    alpha = latency / columns[0, 0]"""),
        ],
        "This is beta. In which order are the columns?": edit("alpha, beta = ", "beta, alpha = "),
        "alpha is in seconds, not in milliseconds or microseconds.": [
            edit_value("alpha", "1e3 * alpha"),
            edit_value("alpha", "1e6 * alpha"),
        ],
        "beta is in seconds per byte. This is a bandwidth, or has another unit: which one?": [
            edit_value("beta", "1 / beta"),
            edit_value("beta", "beta / 8"),
            edit_value("beta", "8 * beta"),
            edit_value("beta", "1e9 * beta"),
        ],
        "Nothing is hidden here. What runs while a rank computes?": [
            edit(EXPOSED, "communication"),
            only_strong("hidden = 0"),
        ],
        "More was hidden than there is. What is the least time that a step can take?": [
            edit(EXPOSED, "communication - hidden * compute"),
            edit_value("strong", "compute / (compute + ranks * communication - hidden * compute)"),
        ],
        "`hidden` is a share of the compute: the share that hides communication. What is hidden "
        "here?": [
            edit(EXPOSED, "(1 - hidden) * communication"),
            edit("- hidden", "- (1 - hidden)"),
            edit("- hidden * compute", "- compute"),
        ],
        "Each all-reduce got all of the hidden time. It exists once, for all of them together.": (
            edit(EXPOSED, f"sum(max(0.0, {BUCKET_TIME} - hidden * compute) {BUCKET_LOOP})")
        ),
        "Less compute hides less. How much compute hides the all-reduces of N ranks?": (
            only_strong("hidden *= ranks")
        ),
        "alpha is paid only once here. How many all-reduces does a step make?": [
            edit(
                f"sum({BUCKET_TIME} {BUCKET_LOOP})",
                "messages * (alpha + beta * sum(buckets) / ranks)",
            ),
            only_strong("communication -= messages * alpha * (len(buckets) - 1)"),
        ],
        "Each bucket was charged for the bytes of all buckets.": edit(
            "beta * bucket", "beta * sum(buckets)"
        ),
        "The bytes of a bucket were not multiplied by what a rank sends of them, 2 (N - 1) / N.": (
            edit(BUCKET_TIME, "messages * alpha + (ranks > 1) * beta * bucket")
        ),
        "Only one bucket was charged.": [
            edit(BUCKET_LOOP, "for bucket in buckets[:1]"),
            edit(BUCKET_LOOP, "for bucket in [max(buckets)]"),
        ],
        "Half of each all-reduce is missing. How many messages does a ring send one after the "
        "other?": edit("messages = 2 * ", "messages = "),
        "The gradients do not shrink with N. How many bytes does an all-reduce have if N ranks "
        "share the work?": only_strong(
            f"beta /= ranks\n    communication = sum({BUCKET_TIME} {BUCKET_LOOP})"
        ),
        "This is the time of a step in seconds. An efficiency is one time divided by another.": (
            edit_value("weak", "step(compute)")
        ),
        "An efficiency is at most 1, and 1 is the ideal. Is this its inverse, the speed-up, or in "
        "percent?": [
            edit_value("weak", "1 / weak"),
            edit_value("strong", "1 / strong"),
            edit_value("weak", "ranks * weak"),
            edit_value("strong", "ranks * strong"),
            edit_value("weak", "100 * weak"),
        ],
        "This was divided by N. In weak scaling N ranks do N times the work.": (
            edit_value("weak", "weak / ranks")
        ),
        "This is strong scaling. In weak scaling each rank computes as much as the one rank did.": (
            edit_value("weak", "strong")
        ),
        "In strong scaling the ranks share the work. How much does each of them compute here?": [
            edit_value("strong", "weak"),
            edit_value("strong", "weak / ranks"),
        ],
        "Is something rounded on the way, or computed in float32?": Pattern(has_lost_digits),
    },
    unchanged_hint="Which line changes the caller's lists?",
    errors={
        "ingular": "Two rows may be the same measurement. How can you use all rows?",
        "by zero": "Two rows may be alike, or have the same S / N, and one rank sends nothing. "
        "By what do you divide?",
    },
    on_pass="alpha, beta and both efficiencies, for six jobs on 1 to 1,024 ranks",
)
