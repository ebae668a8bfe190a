"""What DDP sends in each call: a row for each model, a column for each call."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ddp_workbook.figures.palette import series_colour, tint
from ddp_workbook.figures.style import FAINT, WIDTH, style

SHAPES, STATE = "comparing shapes", "parameters and buffers"
BUFFERS, ORDER = "buffers", "order of the buckets"
GRADIENTS, USED = "gradients", "which parameters were used"
KINDS = (SHAPES, STATE, GRADIENTS, ORDER, BUFFERS, USED)
LINE = 0.25  # inches for each message


class Message(NamedTuple):
    """A message of one rank: one of the KINDS, and its size in bytes."""

    kind: str
    size: int


Sent = Mapping[str, Sequence[Sequence[Message]]]  # model -> for each call its messages


@style()
def messages_plot(sent: Sent, calls: Sequence[str]) -> Figure:
    """A box for each message, with its bytes, under the call that sent it."""
    heights = [max(len(call) for call in of_calls) * LINE + 0.15 for of_calls in sent.values()]
    figure = Figure((WIDTH, sum(heights) + 1.15), layout="constrained")
    axes = figure.subplots()
    bottom = 0.0
    for height, of_calls in zip(heights, sent.values(), strict=True):
        for column, call in enumerate(of_calls):
            _cell(axes, column, bottom, height, call)
        bottom += height
    axes.set(xlim=(-0.5, len(calls) - 0.5), ylim=(bottom, 0))
    middles = [sum(heights[:row]) + height / 2 for row, height in enumerate(heights)]
    axes.set_yticks(middles, [name.replace(" ", "\n") for name in sent])
    names = [call.replace(" ", "\n") for call in calls]
    axes.set_xticks(range(len(calls)), names, fontsize=10)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    kinds = {one.kind for of_calls in sent.values() for call in of_calls for one in call}
    keys = [Patch(label=kind, **_look(kind)) for kind in KINDS if kind in kinds]
    figure.legend(handles=keys, loc="outside lower left", ncols=3, handlelength=1.6)
    return figure


def _cell(axes: Axes, column: int, bottom: float, height: float, call: Sequence[Message]) -> None:
    axes.add_patch(
        Rectangle((column - 0.5, bottom), 1, height, facecolor="none", edgecolor=FAINT, zorder=0)
    )
    top = bottom + (height - len(call) * LINE) / 2
    for row, message in enumerate(call):
        place = (column - 0.46, top + row * LINE + 0.015)
        axes.add_patch(Rectangle(place, 0.92, LINE - 0.03, **_look(message.kind)))
        words = {"ha": "center", "va": "center", "fontsize": 9}
        axes.text(column, top + (row + 0.5) * LINE, f"{message.size:,} B", **words)


def _look(kind: str) -> dict:
    colour = series_colour(KINDS.index(kind))
    return {"facecolor": tint(colour, 0.35), "edgecolor": colour, "linewidth": 1}


def alt_text_of_messages(sent: Sent, calls: Sequence[str]) -> str:
    """The boxes in words: which call of which model sends what."""
    words = []
    for name, of_calls in sent.items():
        parts = [
            f"{call}: " + " and ".join(f"{one.kind}, {one.size:,} bytes" for one in sent_there)
            for call, sent_there in zip(calls, of_calls, strict=True)
            if sent_there
        ]
        idle = [call for call, there in zip(calls, of_calls, strict=True) if not there]
        nothing = f" Nothing is sent in {', '.join(idle)}." if idle else ""
        words.append(f"{name}: {'; '.join(parts)}.{nothing}")
    return "What rank 0 sends in each call. " + " ".join(words)
