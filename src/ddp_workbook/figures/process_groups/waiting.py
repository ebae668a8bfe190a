"""What ranks do over time, and when they wait for each other."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ddp_workbook.figures.palette import rank_colour, tint
from ddp_workbook.figures.style import INK, WIDTH, style

Span = tuple[str, float, float]  # compute, all-reduce or write; start and end in milliseconds
WORDS = {"compute": "computes", "all-reduce": "in the all-reduce", "write": "writes an event"}


@style()
def lanes_plot(lanes: Sequence[Sequence[Span]]) -> Figure:
    """A lane for each rank: when it computed, was in an all-reduce, and wrote; in milliseconds."""
    figure = Figure((WIDTH, 1.1 + 0.55 * len(lanes)), layout="constrained")
    axes = figure.subplots()
    for rank, spans in enumerate(lanes):
        for what, start, end in spans:
            look = _look(what, rank_colour(rank))
            axes.barh(rank, end - start, left=start, height=0.66, **look)
    axes.set_yticks(range(len(lanes)), [f"rank {rank}" for rank in range(len(lanes))])
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0)
    axes.set_xlabel("milliseconds since the first rank began")
    keys = [Patch(label=words, **_look(what, INK)) for what, words in WORDS.items()]
    figure.legend(handles=keys, loc="outside upper left", ncols=3, handlelength=1.6)
    return figure


def _look(what: str, colour: str) -> dict:
    fills = {
        "compute": {"facecolor": tint(colour, 0.3)},
        "all-reduce": {"facecolor": "white", "hatch": "////", "hatchcolor": colour},
        "write": {"facecolor": colour},
    }
    return fills[what] | {"edgecolor": colour, "linewidth": 1.2}


def alt_text_of_lanes(lanes: Sequence[Sequence[Span]]) -> str:
    """The same in words: how long each rank was in its all-reduces, and how long it wrote."""
    parts = []
    for rank, spans in enumerate(lanes):
        waits = [f"{end - start:.0f}" for what, start, end in spans if what == "all-reduce"]
        wrote = sum(end - start for what, start, end in spans if what == "write")
        words = f"it writes for {wrote:.0f} ms altogether" if wrote else "it writes nothing"
        parts.append(f"Rank {rank} is in its all-reduces for {', '.join(waits)} ms; {words}.")
    return f"A lane for each rank, over time. {' '.join(parts)}"


def alt_text_of_loss(curve: pd.DataFrame) -> str:
    """The loss over the steps, in words."""
    first, last = curve["loss"].iloc[0], curve["loss"].iloc[-1]
    return f"Loss over {len(curve)} steps, read from the file: from {first:.1f} to {last:.1f}."
