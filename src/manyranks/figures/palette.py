"""How pictures tell ranks, series and parts apart: by colour, and by marker or words as well.

Colour is never alone: a rank has its number in every text and its own marker in every line, and the
colours of parts differ in lightness.
"""

from typing import Any

from manyranks.rank_colours import rank_colour, rgb

INK, FAINT = "#1a1a1a", "#d9d9d9"
RANK_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

# What is no rank (a kind of training, a part of a step) never wears a rank's colour. These stand on
# a picture's white card only, so lightness tells them apart as well.
SERIES_COLOURS = ("#4a4a4a", "#8f8f8f", "#6d9c1e", "#14532d", "#b5739d", "#6b2d5c")

# A part of what a rank holds, or of what a step takes, has one colour in all pictures.
# The six of a line are told apart by colour; a name of the second line shares one with the first,
# and is never in one picture with it.
PARTS = {
    **{"parameters": 0, "gradients": 1, "optimizer state": 2},
    **{"unsharded": 3, "activations": 4, "buckets": 5},
    **{"copies": 0, "inputs": 3, "outputs": 4},
    **{"replicate": 0, "scatter": 1, "compute": 2},
    **{"gather": 3, "optimizer": 4, "all-reduce": 5},
    **{"all-reduce not hidden": 5, "constructor": 0, "step": 4},
    **{"add gradients": 5, "backward and optimizer": 4},
    **{"network": 3, "forward": 1, "backward": 2},
    **{"ideal": 2, "lost": 5, "sleeps": 3, "mapped file": 1},
    **{"old save": 2, "new save": 1, "torn": 5},
    **{"refused": 5, "waits": 5, "writes": 1},
    **{"detection": 0, "restart": 1, "loading": 3},
    **{"computed again": 5, "saving": 4, "training": 2},
    **{"exposed": 5, "added": 5},
    **{"hidden": 1, "waiting": 4, "other": 0},
}


def rank_marker(rank: int) -> str:
    """The matplotlib marker of `rank`, for lines and points."""
    return RANK_MARKERS[rank % len(RANK_MARKERS)]


def series_colour(index: int) -> str:
    """The colour of line or bar `index` where that is no rank; 6 starts again."""
    return SERIES_COLOURS[index % len(SERIES_COLOURS)]


def part_look(part: str) -> dict[str, Any]:
    """How matplotlib fills an area of this part: by its name in PARTS, the same in all pictures.

    "rank 2" and "device 2" have the look of rank 2. Raises ValueError for a name that is not known.
    """
    word, _, count = part.partition(" ")
    if word in ("rank", "device") and count.isdigit():
        return rank_look(int(count))
    if part not in PARTS:
        raise ValueError(f"{part!r} has no colour: give it one in PARTS of {__name__}.")
    return _fill(series_colour(PARTS[part]))


def rank_look(rank: int) -> dict[str, Any]:
    """How matplotlib fills an area of this rank."""
    return _fill(rank_colour(rank))


def series_look(index: int) -> dict[str, Any]:
    """How matplotlib fills bar `index` where that is neither a rank nor a part."""
    return _fill(series_colour(index))


def pale_look(colour: str) -> dict[str, Any]:
    """How matplotlib fills an area in which something waits, or is only expected."""
    return {"facecolor": tint(colour, 0.3), "edgecolor": "white", "linewidth": 0.8}


def _fill(colour: str) -> dict[str, Any]:
    return {"facecolor": colour, "edgecolor": "white", "linewidth": 0.8}


def tint(colour: str, share: float = 0.25) -> str:
    """`colour` mixed with white, `share` of it left: a fill that black text can stand on."""
    return "#" + "".join(f"{round(255 - share * (255 - part)):02x}" for part in rgb(colour))
