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

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ddp_workbook.exercises import Alone, Look, Seen, When
from ddp_workbook.exercises.judging.same import is_number, kind
from ddp_workbook.exercises.judging.values import in_words

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


PARTS = ("alpha", "beta", "weak", "strong")
SAME = 1e-4  # relative tolerance: there are several ways to fit


class Case(NamedTuple):
    """A call, with the alpha and beta to find; `measured` has (ranks, bytes) of each timing."""

    alpha: float
    beta: float
    measured: list[tuple[int, int]]
    compute: float
    buckets: list[int]
    hidden: float
    ranks: int

    @property
    def timings(self) -> list[tuple[int, int, float]]:
        """The rows that are given."""
        return [
            (n, size, 2 * (n - 1) * self.alpha + 2 * (n - 1) / n * size * self.beta)
            for n, size in self.measured
        ]

    @property
    def communication(self) -> float:
        """Seconds of all buckets, on `ranks` ranks."""
        return len(self.buckets) * self.latency + self.transfer

    @property
    def latency(self) -> float:
        """Of one all-reduce."""
        return 2 * (self.ranks - 1) * self.alpha

    @property
    def transfer(self) -> float:
        """Seconds for the bytes of all buckets."""
        return 2 * (self.ranks - 1) / self.ranks * sum(self.buckets) * self.beta

    @property
    def share(self) -> float:
        """Seconds of compute of each rank in strong scaling."""
        return self.compute / self.ranks

    @property
    def weak(self) -> float:
        """The right one."""
        return self.compute / self.step(self.compute)

    @property
    def strong(self) -> float:
        """The right one."""
        return self.share / self.step(self.share)

    def step(self, compute: float, communication: float | None = None) -> float:
        """Seconds, with overlap."""
        sent = self.communication if communication is None else communication
        return compute + max(0.0, sent - self.hidden * compute)


KIB = 1024
CASES = [
    # some of it is hidden; repeated rows first
    Case(
        45e-6, 0.8e-9, [(2, KIB)] * 2 + [(4, 2**20), (3, 2**22), (4, 2**20)],
        0.045, [7_100_000, 26_300_000, 20_900_000], 0.55, 16,
    ),
    Case(18e-6, 2.5e-9, [(8, 4 * KIB), (2, 2**22)], 0.21, [60_000_000], 0.25, 6),  # one bucket
    Case(7e-6, 0.04e-9, [(4, KIB), (4, 2**24), (4, 2**20)], 0.3, [25_000_000] * 4, 0.6, 8),
    Case(90e-6, 1.1e-9, [(2, 2**20), (3, 2**20), (8, 2**20)], 0.07, [1_000_000] * 30, 0.5, 1),
    Case(
        30e-6, 0.3e-9, [(2, 2**20), (4, 2**21), (16, 1_500_000), (5, 1_500_000)],
        0.4, [3_500_000] * 9, 0.0, 1024,
    ),  # the first two, and the smallest and the largest, have the same S / N
    # all is hidden in weak scaling, not in strong; sorted, both ends have the same S / N
    Case(
        25e-6, 0.6e-9, [(5, 3000), (8, 2**22), (2, 2**20)],
        0.25, [2_600_000, 26_000_000], 0.65, 12,
    ),
]  # fmt: skip


def arguments(case: Case) -> tuple:
    """The arguments of a call; its lists are copies."""
    return case.timings, case.compute, [*case.buckets], case.hidden, case.ranks


def call(case: Case) -> str:
    """The call, as the verdict shows it."""
    timings, compute, buckets, hidden, ranks = arguments(case)
    lists = in_words(timings), in_words(buckets)
    return f"predict_scaling({lists[0]}, {compute}, {lists[1]}, {hidden}, {ranks})"


def fitted(messages: Callable, data: Callable, which: int) -> Callable[[Case], float]:
    """alpha (0) or beta (1), if the columns of the fit are these functions of N and S."""

    def found(case: Case) -> float:
        n, size, seconds = np.array(case.timings, dtype=float).T
        columns = np.stack([messages(n) + 0 * n, data(n) * size], axis=1)
        return float(np.linalg.lstsq(columns, seconds, rcond=None)[0][which])

    return found


def ring_messages(n: Any) -> Any:
    """Messages that follow one another in a ring."""
    return 2 * (n - 1)


def ring_share(n: Any) -> Any:
    """What a rank sends, as a multiple of S."""
    return 2 * (n - 1) / n


def number(value: Any) -> float | None:
    """A number of any library, or the only element of a tensor or array; else None."""
    if hasattr(value, "item") and math.prod(getattr(value, "shape", (0,))) == 1:
        value = value.item()
    return float(value) if is_number(value) else None


def form(came: Any) -> str:
    """The kind of what came back: the first look, so that the others can rely on it."""
    if not isinstance(came, Mapping):
        return kind(came)
    if set(came) != set(PARTS):
        return "a dict with other keys"
    others = [kind(value) for value in came.values() if number(value) is None]
    return f"a dict with {others[0]} in it" if others else "a dict of four numbers"


def same(came: Any, right: Any) -> bool:
    """Numbers of any library, up to SAME."""
    one, other = number(came), number(right)
    return one is not None and other is not None and abs(one - other) <= SAME * abs(other)


def look(part: str, unit: str, mistakes: dict[str, Any], otherwise: str) -> Look:
    """One of the four numbers."""
    return Look(
        of=lambda seen: seen.came[part],
        right=lambda case: getattr(case, part),
        mistakes=mistakes,
        otherwise=otherwise,
        came=lambda seen: f'{number(seen.value):.6g}{unit} as "{part}"',
        required=lambda seen: f"{seen.right:.6g}{unit}",
        same=same,
    )


FORM = Look(
    of=lambda seen: form(seen.came),
    right="a dict of four numbers",
    mistakes={
        "Does the function return its dict?": "None",
        "Which four keys does the task name?": "a dict with other keys",
    },
    otherwise="Which of your lines makes a dict of plain numbers?",
    came=lambda seen: f"{in_words(seen.came)}, {seen.value}",
    required='a dict with the keys "alpha", "beta", "weak", "strong"',
)
ALPHA = {
    "The column of alpha counts N - 1 messages. A ring sends 2 (N - 1) of them, one after the "
    "other: which half is missing?": (lambda case: 2 * case.alpha),
    "The column of alpha is the same for all numbers of ranks. How many messages follow one "
    "another on N ranks?": fitted(lambda n: 1, ring_share, 0),
    "The column of alpha counts N messages. Does a rank send to itself?": (
        fitted(lambda n: 2 * n, ring_share, 0)
    ),
    "This is the column of a tree, log2(N). How many messages follow one another in a ring?": (
        fitted(lambda n: 2 * np.log2(n), ring_share, 0)
    ),
    "The column of beta is S. How many bytes does a rank send on N ranks?": (
        fitted(ring_messages, lambda n: 1, 0)
    ),
    "The column of beta has N - 1 times the bytes. How large is a piece on N ranks?": (
        fitted(ring_messages, ring_messages, 0)
    ),
    "These are all the seconds of the smallest message, for its latency alone. It has bytes, too: "
    "how can you use all rows?": lambda case: smallest_message(case),
    "This is beta. In which order are the columns?": lambda case: case.beta,
    "This is in milliseconds, not in seconds.": lambda case: 1e3 * case.alpha,
    "This is in microseconds, not in seconds.": lambda case: 1e6 * case.alpha,
    "Only rows with one N were used, and they may all be the same measurement. How can you use "
    "the others?": When(lambda seen: any(same(seen.value, one) for one in of_one_n(seen.case))),
    "Some digits are lost. Is something rounded, or computed in float32?": (
        When(lambda seen: lost_digits(seen))
    ),
}
BETA = {
    "This is a bandwidth, in bytes per second. beta is in seconds per byte.": (
        lambda case: 1 / case.beta
    ),
    "The column of beta counts N - 1 messages of S / N bytes. A ring sends 2 (N - 1) of them: "
    "which half is missing?": (lambda case: 2 * case.beta),
    "This is in seconds per bit.": lambda case: case.beta / 8,
    "These are the seconds for 8 bytes. Are the sizes in bytes?": lambda case: 8 * case.beta,
    "This is alpha.": lambda case: case.alpha,
    "This is in nanoseconds per byte.": lambda case: 1e9 * case.beta,
    "Some digits are lost. Is something rounded, or computed in float32?": (
        When(lambda seen: lost_digits(seen))
    ),
}


def smallest_message(case: Case) -> float:
    """Alpha if the smallest all-reduce took no time for its bytes."""
    n, _, seconds = min(case.timings, key=lambda row: row[1])
    return seconds / ring_messages(n)


def of_one_n(case: Case) -> list[float]:
    """What two ways to fit the rows with the N of the first one give for alpha."""
    n = case.timings[0][0]
    size, seconds = np.array([row[1:] for row in case.timings if row[0] == n]).T
    columns = np.stack([ring_messages(n) + 0 * size, ring_share(n) * size], axis=1)
    with warnings.catch_warnings(action="ignore"):  # of polyfit: a single measurement
        line = np.polyfit(ring_share(n) * size, seconds, 1)
    return [line[1] / ring_messages(n), np.linalg.lstsq(columns, seconds, rcond=None)[0][0]]


def lost_digits(seen: Seen) -> bool:
    """Whether a value is near the right one, has two digits, or was lost in float32 (about 0)."""
    value, right = number(seen.value), seen.right
    two_digits = value == float(f"{value:.1e}")
    near = abs(value - right) <= (0.3 if two_digits else 0.02) * right
    return near or abs(value) < 1e-6 * right


def on_ranks(case: Case, ranks: int) -> float:
    """Seconds of all buckets, on another number of ranks."""
    return case._replace(ranks=ranks).communication


def beyond(case: Case) -> float:
    """Seconds on top in weak scaling if each bucket gets the whole hidden window."""
    window = case.hidden * case.compute
    each = (case._replace(buckets=[bucket]).communication for bucket in case.buckets)
    return sum(max(0.0, one - window) for one in each)


def weak(communication: Callable[[Case], float]) -> Callable[[Case], float]:
    """The efficiency if communication takes these seconds."""
    return lambda case: case.compute / case.step(case.compute, communication(case))


def together(case: Case) -> float:
    """Seconds of one all-reduce of all buckets."""
    return case.latency + case.transfer


WEAK = {
    "This is the time of a step in seconds. An efficiency is one time divided by another.": (
        lambda case: case.step(case.compute)
    ),
    "This is how many times longer a step takes. Which of the two times is the numerator?": (
        lambda case: 1 / case.weak
    ),
    "This is the speed-up. An efficiency is at most 1.": lambda case: case.ranks * case.weak,
    "Nothing is hidden here. What runs while a rank computes?": (
        lambda case: case.compute / (case.compute + case.communication)
    ),
    "More was hidden than there is. What is the least time that a step can take?": (
        lambda case: case.compute / (case.compute * (1 - case.hidden) + case.communication)
    ),
    "`hidden` is a share of the compute, not of the communication.": (
        lambda case: case.compute / (case.compute + (1 - case.hidden) * case.communication)
    ),
    "alpha is paid only once here. How many all-reduces does a step make?": weak(together),
    "Each bucket was charged for the bytes of all buckets.": (
        weak(lambda case: case.latency * len(case.buckets) + case.transfer * len(case.buckets))
    ),
    "The bytes of a bucket were not multiplied by what a rank sends of them, 2 (N - 1) / N.": (
        weak(
            lambda case: (
                len(case.buckets) * case.latency
                + (sum(case.buckets) * case.beta if case.ranks > 1 else 0)
            )
        )
    ),
    "Only the first bucket was charged.": (
        weak(lambda case: case.latency + case.transfer * case.buckets[0] / sum(case.buckets))
    ),
    "Only the largest bucket was charged.": (
        weak(lambda case: case._replace(buckets=[max(case.buckets)]).communication)
    ),
    "Half of each all-reduce is missing. How many messages does a ring send one after the other?": (
        weak(lambda case: case.communication / 2)
    ),
    "This is strong scaling. In weak scaling each rank computes as much as the one rank did.": (
        lambda case: case.strong
    ),
    "The communication is for the N of the last timing, not for `ranks`. Does a loop overwrite "
    "this name?": weak(lambda case: on_ranks(case, case.measured[-1][0])),
    "Each all-reduce got all of the hidden time. It exists once, for all of them "
    "together.": lambda case: case.compute / (case.compute + beyond(case)),
    "`hidden` is the share of the compute that hides communication, not the rest of it.": (
        lambda case: (
            case.compute
            / (case.compute + max(0.0, case.communication - (1 - case.hidden) * case.compute))
        )
    ),
    "Here all of the compute hides communication. Which share of it does?": (
        lambda case: case.compute / max(case.compute, case.communication)
    ),
    "This is in percent. An efficiency of 1 is 100 percent.": lambda case: 100 * case.weak,
    "This was divided by N. In weak scaling N ranks do N times the work.": (
        lambda case: case.weak / case.ranks
    ),
}
STRONG = {
    "This is the speed-up: the time of one rank over the time of N. The ideal is N.": (
        lambda case: case.ranks * case.strong
    ),
    "This is how many times longer a step takes than an N-th. Which time is the numerator?": (
        lambda case: 1 / case.strong
    ),
    "This equals weak scaling. How much does each of N ranks compute if they share the work, and "
    "how much does it send? The gradients do not shrink with N.": lambda case: case.weak,
    "The gradients do not shrink with N. How many bytes does an all-reduce have if N ranks share "
    "the work?": (
        lambda case: (
            case.share
            / case.step(case.share, len(case.buckets) * case.latency + case.transfer / case.ranks)
        )
    ),
    "The ranks share the work, but here each of them computes all of it.": (
        lambda case: case.share / case.step(case.compute)
    ),
    "Less compute hides less. How much compute hides the all-reduces of N ranks?": (
        lambda case: (
            case.share / (case.share + max(0.0, case.communication - case.hidden * case.compute))
        )
    ),
    "Nothing is hidden here, but it was in weak scaling.": (
        lambda case: case.share / (case.share + case.communication)
    ),
    "More was hidden than there is, in strong scaling.": (
        lambda case: case.share / (case.share * (1 - case.hidden) + case.communication)
    ),
    "alpha is paid only once in strong scaling. How many all-reduces does a step make?": (
        lambda case: case.share / case.step(case.share, together(case))
    ),
}
CHECK = Alone(
    cases=CASES,
    given=arguments,
    called=call,
    looks=[
        FORM,
        look("alpha", " s", ALPHA, "By what are alpha and beta multiplied in each timing?"),
        look("beta", " s a byte", BETA, "alpha is right. What is beta the price of?"),
        look(
            "weak", "", WEAK,
            "Add up the seconds of a step on N ranks: compute, and what is not hidden. Then "
            "divide.",
        ),
        look("strong", "", STRONG, "How many seconds does each of N ranks compute, and how many of "
        "them hide communication?"),
    ],
    keeps="Which line changes the caller's lists?",
    errors={
        "ingular": "Two rows may be the same measurement. How can you use all rows?",
        "by zero": "Two rows may be alike, or have the same S / N, and one rank sends nothing. "
        "By what do you divide?",
        "out of range": "There may be two timings, and one bucket.",
        "to unpack": "There may be two timings or more.",
    },
    proves="alpha, beta and both efficiencies, for six jobs on 1 to 1,024 ranks",
)  # fmt: skip
