"""One colour for each rank, the same in text, tables and pictures.

Chosen by a search over all colours with a contrast of at least 3 : 1 (WCAG 2.2, 1.4.11) against
both white and JupyterLab's dark page: as far apart as that allows, also for readers without red or
green cones, the first four ranks farthest.
"""

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


def rank_colour(rank: int) -> str:
    """The colour of `rank` as "#rrggbb"; rank 8 starts again with the colour of rank 0."""
    return RANK_COLOURS[rank % len(RANK_COLOURS)]


def ansi(colour: str, text: str) -> str:
    """`text` in `colour` ("#rrggbb") and bold, as 24-bit ANSI: terminals and JupyterLab show it."""
    red, green, blue = rgb(for_text(colour))
    return f"\x1b[1;38;2;{red};{green};{blue}m{text}\x1b[0m"


def for_text(colour: str) -> str:
    """`colour`, made as light or dark as small text needs to stand out equally on both pages.

    3 : 1 is enough for lines and bars; dark blue text on a dark page is hard to read. Both pages
    together allow 4.3 : 1.
    """
    end = 255 if contrast(colour, PAGES[0]) > contrast(colour, PAGES[1]) else 0
    mixes = [
        "#" + "".join(f"{round(part + share / 100 * (end - part)):02x}" for part in rgb(colour))
        for share in range(100)
    ]
    return max(mixes, key=lambda mixed: min(contrast(mixed, page) for page in PAGES))


def contrast(first: str, second: str) -> float:
    """Contrast of two colours, 1 to 21, as WCAG 2.2 defines it."""
    darker, lighter = sorted((_luminance(first), _luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of "#rrggbb", each 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    parts = [part / 255 for part in rgb(colour)]
    red, green, blue = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
