"""How often should a training save, and which share of the time do saves and failures cost?

A save stops the training for `save_seconds` seconds. The job has `gpus` GPUs, and a failure of any
one stops it. One GPU alone would fail every `gpu_hours` hours, on average; so the more there are,
the sooner one of them fails. The job then goes on from its last save.

Return a dict with two numbers:

- `"interval"`: the seconds from one save to the next that cost the least, by Young's formula of
  1974: the square root of 2 M C. C is the time of a save, M the mean time between two failures of
  the job.
- `"lost"`: the share of the time that is lost with this interval T, such as 0.05: C / T for the
  saves, and T / (2 M) for the work that is done again, because a failure comes, on average, in the
  middle between two saves.
"""

import random

from ddp_workbook.judging import Comparison, Observation, Pattern, SingleProcessCheck, edit

MINUTES = 6
HINTS = [
    "M belongs to the job, not to one GPU. How often does any of 1,000 GPUs fail, if each fails "
    "every 50,000 hours?",
    "Put C and M into the same unit before you multiply: C is given in seconds, the result is in "
    "seconds.",
]


def checkpoint_interval(save_seconds: float, gpus: int, gpu_hours: float) -> dict[str, float]:
    """Return the seconds between two saves, and the share of the time that is lost."""
    ### BEGIN SOLUTION
    between_failures = gpu_hours / gpus * 3600  # of the job, in seconds
    interval = (2 * between_failures * save_seconds) ** 0.5
    lost = save_seconds / interval + interval / (2 * between_failures)
    return {"interval": interval, "lost": lost}
    ### END SOLUTION


MEAN = "gpu_hours / gpus * 3600"
ROOT = "(2 * between_failures * save_seconds) ** 0.5"
LOST_SHARE = "save_seconds / interval + interval / (2 * between_failures)"


def is_rounded(obs: Observation) -> bool:
    """Whether the value is the right one with fewer decimals."""
    return any(obs.value == round(obs.expected, decimals) for decimals in range(6))


def random_args(rng: random.Random) -> tuple[float, int, float]:
    """A job of any size."""
    return rng.uniform(0.1, 900), rng.randint(1, 20_000), rng.uniform(1e3, 1e5)


CHECK = SingleProcessCheck(
    random_args=random_args,
    # save_seconds, gpus, gpu_hours
    cases=[
        (40, 384, 50_000),
        (30, 16_384, 50_700),
        (0.5, 8, 50_000),
        (600, 1024, 20_000),
        (12, 1, 9_000),
    ],
    compare={
        "form": "",
        "interval": Comparison(
            "Write down M and C, each with its unit. Are both in seconds, and is M the job's?",
            required="{expected} seconds",
        ),
        "lost": "Write down C, T and M, all in seconds, and add the two shares.",
    },
    mistakes={
        "These were multiplied as they are given, hours with seconds. In which unit must M be?": [
            edit(MEAN, "gpu_hours / gpus"),
            edit(MEAN, "gpu_hours / gpus", ROOT, f"{ROOT} * 3600"),
        ],
        "An hour has 3,600 seconds. By what did you multiply?": edit("3600", "60"),
        "This is right for one GPU. How soon does the first of all these GPUs fail?": edit(
            "gpu_hours / gpus * 3600", "gpu_hours * 3600"
        ),
        "More GPUs fail more often. Is M longer or shorter than the time of one GPU?": edit(
            "gpu_hours / gpus", "gpu_hours * gpus"
        ),
        "This is in hours, or in minutes. Seconds are asked for.": [
            edit('"interval": interval', '"interval": interval / 3600'),
            edit('"interval": interval', '"interval": interval / 60'),
        ],
        "Young's formula has a factor under the root, since half an interval is lost, on average. "
        "Which one?": [
            edit("(2 * between_failures * save_seconds)", "(between_failures * save_seconds)"),
            edit(ROOT, "2 * (between_failures * save_seconds) ** 0.5"),
        ],
        "This is the number under the root.": edit(ROOT, "2 * between_failures * save_seconds"),
        "This is Daly's interval, one save shorter. The task asks for Young's.": edit(
            ROOT, f"{ROOT} - save_seconds"
        ),
        "Saves cost this much. What do the failures cost?": edit(
            LOST_SHARE, "save_seconds / interval"
        ),
        "The failures cost the double of this, or the half: a failure loses half an interval. And "
        "the saves?": [
            edit(LOST_SHARE, "save_seconds / interval + interval / between_failures"),
            edit(LOST_SHARE, "(save_seconds / interval + interval / between_failures) / 2"),
        ],
        "T is the time from one save to the next, with the save in it. By what is C divided?": edit(
            LOST_SHARE,
            "save_seconds / (interval + save_seconds) + interval / (2 * between_failures)",
        ),
        "This is in percent. A share is at most 1.": edit('"lost": lost', '"lost": 100 * lost'),
        "These are seconds. A share is one time divided by another.": edit(
            LOST_SHARE, "save_seconds + interval / 2"
        ),
        "The two shares are added: neither is a part of the other.": edit(
            LOST_SHARE, "(save_seconds / interval) * (interval / (2 * between_failures))"
        ),
        "In lost, M is the job's as well, and in seconds.": [
            edit("(2 * between_failures)\n", "(2 * gpu_hours * 3600)\n"),
            edit("(2 * between_failures)\n", "(2 * gpu_hours / gpus)\n"),
            edit("(2 * between_failures)\n", "(2 * gpu_hours)\n"),
        ],
        "This is what is left. What is lost?": edit('"lost": lost', '"lost": 1 - lost'),
        "Is something rounded on the way? Keep the fractions.": Pattern(is_rounded),
    },
    on_pass="interval and lost share of five jobs, on 1 to 16,384 GPUs",
)
