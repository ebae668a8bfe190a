"""One colour, one marker and one hatch for each rank, the same in text, tables and pictures.

Chosen by a search over all colours with a contrast of at least 3 : 1 (WCAG 2.2, 1.4.11) against
both white and JupyterLab's dark page: as far apart as that allows, also for readers without red or
green cones, the first four ranks farthest. Colour is never alone: a rank has its number in every
text, its own marker in every line and its own hatch in every bar.
"""

from typing import Any

PAGES = ("#ffffff", "#111111")  # what a notebook's text stands on: JupyterLab light and dark
RANK_COLOURS = (
    "#004ffe",  # blue
    "#cc8200",  # amber
    "#00999a",  # teal
    "#c30c45",  # crimson
    "#9978ff",  # violet
    "#74687b",  # grey
    "#0582cb",  # sky
    "#c45003",  # rust
)
RANK_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
RANK_HATCHES = ("", "///", "---", "\\\\\\", "xxx", "|||", "+++", "..")

# What is no rank (a kind of training, a part of a step) never wears a rank's colour. These stand on
# a picture's white card only, so lightness tells them apart as well.
SERIES_COLOURS = ("#4a4a4a", "#8f8f8f", "#6d9c1e", "#14532d", "#b5739d", "#6b2d5c")

# A part of what a rank holds, or of what a step takes, has one colour and hatch in all pictures.
# The six of a line are told apart by colour; a name of the second line shares one with the first,
# and is never in one picture with it.
PARTS = {
    **{"parameters": (0, 0), "gradients": (1, 1), "optimizer state": (2, 2)},
    **{"unsharded": (3, 3), "activations": (4, 4), "buckets": (5, 5)},
    **{"copies": (0, 6), "inputs": (3, 7), "outputs": (4, 5)},
    **{"replicate": (0, 0), "scatter": (1, 1), "compute": (2, 2)},
    **{"gather": (3, 3), "optimizer": (4, 4), "all-reduce": (5, 5)},
    **{"add gradients": (5, 6), "backward and optimizer": (4, 4)},
    **{"network": (3, 3), "forward": (1, 0), "backward": (2, 0)},
}


def rank_colour(rank: int) -> str:
    """The colour of `rank` as "#rrggbb"; rank 8 starts again with the colour of rank 0."""
    return RANK_COLOURS[rank % len(RANK_COLOURS)]


def rank_marker(rank: int) -> str:
    """The matplotlib marker of `rank`, for lines and points."""
    return RANK_MARKERS[rank % len(RANK_MARKERS)]


def rank_hatch(rank: int) -> str:
    """The matplotlib hatch of `rank`, for bars and areas."""
    return RANK_HATCHES[rank % len(RANK_HATCHES)]


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
    colour, hatch = PARTS[part]
    return _fill(series_colour(colour), rank_hatch(hatch))


def rank_look(rank: int) -> dict[str, Any]:
    """How matplotlib fills an area of this rank."""
    return _fill(rank_colour(rank), rank_hatch(rank))


def series_look(index: int) -> dict[str, Any]:
    """How matplotlib fills bar `index` where that is neither a rank nor a part."""
    return _fill(series_colour(index), "")


def pale_look(colour: str) -> dict[str, Any]:
    """How matplotlib fills an area in which something waits, or is only expected."""
    return {"facecolor": tint(colour), "hatch": "///", "edgecolor": colour, "linewidth": 0}


def _fill(colour: str, hatch: str) -> dict[str, Any]:
    return {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}


def tint(colour: str, share: float = 0.25) -> str:
    """`colour` mixed with white, `share` of it left: a fill that black text can stand on."""
    return "#" + "".join(f"{round(255 - share * (255 - part)):02x}" for part in _rgb(colour))


def ansi(colour: str, text: str) -> str:
    """`text` in `colour` ("#rrggbb") and bold, as 24-bit ANSI: terminals and JupyterLab show it."""
    red, green, blue = _rgb(for_text(colour))
    return f"\x1b[1;38;2;{red};{green};{blue}m{text}\x1b[0m"


def for_text(colour: str) -> str:
    """`colour`, made as light or dark as small text needs to stand out equally on both pages.

    3 : 1 is enough for lines and bars; dark blue text on a dark page is hard to read. Both pages
    together allow 4.3 : 1.
    """
    end = 255 if contrast(colour, PAGES[0]) > contrast(colour, PAGES[1]) else 0
    mixes = [
        "#" + "".join(f"{round(part + share / 100 * (end - part)):02x}" for part in _rgb(colour))
        for share in range(100)
    ]
    return max(mixes, key=lambda mixed: min(contrast(mixed, page) for page in PAGES))


def contrast(one: str, other: str) -> float:
    """Contrast of two colours, 1 to 21, as WCAG 2.2 defines it."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    parts = [part / 255 for part in _rgb(colour)]
    red, green, blue = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
