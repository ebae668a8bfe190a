"""Which bucket size lets the last gradients arrive first, on a given network?

Backward makes one gradient after the other. `gradients` lists them in this order as pairs
(ready, size): the seconds from the beginning of backward until it is there, and its bytes. Whole
gradients are put into a bucket until it holds at least `limit` bytes, and then it is full. The last
bucket may hold less.

A bucket is sent once its last gradient is ready and the bucket before it has arrived, so one at a
time. Sending takes `latency + bytes / speed` seconds.

Compare the limits in the list `limits`, and return a dict with two numbers:

- `"limit"`: the one with which the last bucket arrives first. If several are equally good, the
  largest of them: it takes the fewest calls.
- `"seconds"`: when the last bucket arrives then, from the beginning of backward.

There is at least one gradient, and one limit. Do not change the lists.
"""

import random
from itertools import accumulate
from operator import eq
from typing import NamedTuple

from ddp_workbook.judging import Comparison, Pattern, SingleProcessCheck, edit

MINUTES = 10
HINTS = [
    "Begin with one limit. Go through the gradients, and keep two numbers: the bytes in the bucket "
    "that is being filled, and the time at which the network is free again.",
    "A full bucket begins at the later one of two times. Which two? When it has been sent, the "
    "next one begins with no bytes.",
    "The last gradient closes its bucket, whether it is full or not. With all arrivals in a dict "
    "by limit, the smallest one decides, and the larger limit where two are equal.",
]


def choose_bucket(
    gradients: list[tuple[float, int]], limits: list[int], latency: float, speed: float
) -> dict[str, float]:
    """The best of the limits in bytes, and the seconds until the last bucket has arrived."""
    ### BEGIN SOLUTION
    arrivals = {}
    for limit in limits:
        free, held = 0.0, 0
        for made, (ready, size) in enumerate(gradients, start=1):
            held += size
            if held >= limit or made == len(gradients):
                free = max(free, ready) + latency + held / speed
                held = 0
        arrivals[limit] = free
    best = min(limits, key=lambda limit: (arrivals[limit], -limit))
    return {"limit": best, "seconds": arrivals[best]}
    ### END SOLUTION


class Backward(NamedTuple):
    """One call."""

    gradients: list[tuple[float, int]]
    limits: list[int]
    latency: float
    speed: float


MB = 1_000_000
EVEN = [(0.25 * layer, 4 * MB) for layer in range(1, 9)]
SIZES = [4, 5, 1, 5, 2, 2, 4, 5]
READY = [0.25, 1.0, 1.75, 2.5, 3.25, 4.0, 5.0, 5.25]
CASES = [
    Backward(  # 5, 5.5 and 6 MB make the same arrival; all mistakes show
        [(ready, size * MB) for ready, size in zip(READY, SIZES, strict=True)],
        [3 * MB, 5_500_000, 5 * MB, 6 * MB],
        0.5,
        4 * MB,
    ),
    Backward(EVEN, [4 * MB, 8 * MB, 16 * MB, 32 * MB], 0.125, 32 * MB),  # the wire is fast
    Backward(EVEN, [32 * MB, 4 * MB, 8 * MB, 16 * MB], 0.5, 8 * MB),  # and slow, with calls dear
    Backward(
        [(0.5, 9 * MB), (0.75, 1 * MB), (1.0, 5 * MB), (2.0, 3 * MB), (2.25, 6 * MB), (4.0, MB)],
        [6 * MB, 10 * MB, 15 * MB],
        0.25,
        4 * MB,
    ),
    Backward([(1.0, 6 * MB), (1.5, 2 * MB)], [9 * MB, 30 * MB, 8 * MB], 0.25, 8 * MB),  # equal
    Backward([(0.5, 3 * MB)], [MB], 0.125, 2 * MB),
]


def random_args(rng: random.Random) -> tuple[list[tuple[float, int]], list[int], float, float]:
    """A few gradients; all times are sums of powers of two, so that equal ones are equal."""
    steps = accumulate(rng.choice([0.25, 0.5, 1.0]) for _ in range(rng.randint(1, 5)))
    gradients = [(ready, rng.randint(1, 6) * MB) for ready in steps]
    limits = rng.sample(range(1, 13), rng.randint(1, 3))
    latency, speed = rng.choice([0.125, 0.5, 2.0]), rng.choice([2, 4, 16]) * MB
    return gradients, [limit * MB for limit in limits], latency, speed


FULL = "held >= limit or made == len(gradients)"
BEST = "min(limits, key=lambda limit: (arrivals[limit], -limit))"


CHECK = SingleProcessCheck(
    cases=CASES,
    make_args=lambda case: (list(case.gradients), list(case.limits), case.latency, case.speed),
    random_args=random_args,
    compare={
        "form": "",
        "seconds": "Take the limit that you found, and write down for each bucket: its bytes, when "
        "it can begin, when it arrives.",
        "limit": Comparison(
            "When does the last bucket arrive with each of the limits?",
            actual="limit: {value}, with the right seconds",
            equal=eq,  # 6e6 is the limit 6000000 as well
        ),
    },
    mistakes={
        "Buckets are sent one at a time. Does yours wait for the one before it?": edit(
            "max(free, ready)", "ready"
        ),
        "Everything is sent after backward here. When is a bucket's last gradient ready?": edit(
            "max(free, ready)", "max(free, gradients[-1][0])"
        ),
        "These are the bytes and calls alone. Can a bucket be sent before its last gradient is "
        "ready?": edit("max(free, ready)", "free"),
        "A bucket begins at the later one of two times. Why are they added?": edit(
            "max(free, ready)", "free + ready"
        ),
        "Each bucket pays the latency. Where does yours?": edit(" + latency", ""),
        "Here the latency is paid once. Who else pays it?": edit(
            "free, held = 0.0, 0", "free, held = latency, 0", " + latency", ""
        ),
        "A bucket is one call, however many gradients are in it. How often is its latency paid?": (
            edit(
                *("free, held = 0.0, 0", "free, held, count = 0.0, 0, 0"),
                *("held += size\n", "held += size\n            count += 1\n"),
                *("+ latency", "+ latency * count"),
                *("                held = 0\n", "                held = count = 0\n"),
            )
        ),
        "The last bucket was full, and one without a gradient was sent after it.": edit(
            *(" or made == len(gradients)", ""),
            *(" = free\n", " = max(free, ready) + latency + held / speed\n"),
        ),
        "The last bucket is missing if it is not full. What closes it?": edit(
            " or made == len(gradients)", ""
        ),
        "Your bucket takes a gradient more than it needs. Is it full at exactly the limit?": edit(
            "held >= limit", "held > limit"
        ),
        "Here every gradient travels by itself. What is a limit for?": edit(FULL, "True"),
        "Here all gradients are in one bucket. What is a limit for?": edit(
            FULL, "made == len(gradients)"
        ),
        "The next bucket sends the bytes of the one before it again. Where does it begin with "
        "none?": edit("                held = 0\n", ""),
        "Your bucket is closed before a gradient that would make it full. A gradient is put in "
        "until there are at least `limit` bytes.": edit(
            "            held += size\n            if held >= limit or made == len(gradients):\n"
            "                free = max(free, ready) + latency + held / speed\n"
            "                held = 0\n",
            "            if held and held + size > limit:\n                free = max(free, "
            "before) + latency + held / speed\n                held = 0\n            held, before "
            "= held + size, ready\n        free = max(free, ready) + latency + held / speed\n",
        ),
        "Of equally good limits, this is a smaller one. Which takes fewer calls?": edit(
            BEST, "min(limits, key=lambda limit: (arrivals[limit], limit))"
        ),
        "Two limits are equally good, and this is the first of them. Which takes fewer calls?": (
            edit(BEST, "min(limits, key=arrivals.get)")
        ),
        "With this limit the last bucket arrives last. The first is asked for.": edit(
            BEST, "max(limits, key=lambda limit: (arrivals[limit], limit))"
        ),
        "This is the time after the end of backward. From when on is it counted?": edit(
            '"seconds": arrivals[best]', '"seconds": arrivals[best] - gradients[-1][0]'
        ),
        "speed is in bytes for a second. Is it multiplied?": edit("held / speed", "held * speed"),
        "This is none of the limits in the list.": Pattern(
            lambda obs: obs.value not in obs.case.limits, "limit"
        ),
        "No bucket is there so early. When is the last gradient ready?": Pattern(
            lambda obs: obs.value < obs.case.gradients[-1][0], "seconds"
        ),
    },
    unchanged_hint="gradients and limits are the caller's. Which line changes one of them?",
    on_pass="the best limit and its seconds in 6 backwards, on fast and slow networks",
)
