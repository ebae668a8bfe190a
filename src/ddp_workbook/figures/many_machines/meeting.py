"""How hosts meet: who starts, who waits for whom, and when all have met."""

from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ddp_workbook.figures.palette import rank_colour, series_colour, tint
from ddp_workbook.figures.style import INK, WIDTH, style

AGENT = series_colour(0)
WAITING = "////"
WORDS = {"starts": "starts Python", "waits": "waits for the others", "works": "works"}


class Stay(NamedTuple):
    """A torchrun (`rank` is None) or a rank of `host` does `what`, from `begin` to `end`.

    `what` is "starts" (its Python starts and imports torch), "waits" (for the others) or "works";
    times are in seconds.
    """

    host: str
    rank: int | None
    what: str
    begin: float
    end: float


class Meeting(NamedTuple):
    """When hosts and ranks met; times in seconds since the first torchrun was started."""

    stays: list[Stay]
    ranks_given: float  # when the last torchrun knew its ranks
    group_met: float  # when rank 0 printed what all ranks had told it
    store_host: str  # whose torchrun kept the store


@style()
def rendezvous_plot(meeting: Meeting) -> Figure:
    """A lane for each torchrun and for each rank: starting, waiting, working, in seconds."""
    stays, ranks_given, group_met, store_host = meeting
    lanes = list(dict.fromkeys((stay.host, stay.rank) for stay in stays))
    figure = Figure((WIDTH, 1.0 + 0.42 * len(lanes)), layout="constrained")
    axes = figure.subplots()
    for stay in stays:
        _bar(axes, lanes.index((stay.host, stay.rank)), stay)
    # The words stand on either side of the two lines, which can be close to each other.
    marks = (
        (ranks_given, "ranks are assigned ", "right"),
        (group_met, " all ranks have met", "left"),
    )
    for time, words, side in marks:
        axes.axvline(time, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=3)
        axes.text(time, -0.62, words, ha=side, va="bottom", fontsize=10)
    names = [_lane_name(host, rank, store_host) for host, rank in lanes]
    axes.set_yticks(range(len(lanes)), names)
    for label, (_, rank) in zip(axes.get_yticklabels(), lanes, strict=True):
        label.set_fontweight("bold" if rank is None else "normal")
    axes.set_ylim(len(lanes) - 0.5, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0)
    axes.set_xlabel("seconds since the first torchrun was started")
    look = {"edgecolor": INK, "linewidth": 0.8}
    keys = [
        Patch(facecolor=tint(AGENT, 0.25), label=WORDS["starts"], **look),
        Patch(facecolor="white", hatch=WAITING, label=WORDS["waits"], **look | {"hatchcolor": INK}),
        Patch(facecolor=AGENT, label=WORDS["works"], **look),
    ]
    figure.legend(handles=keys, loc="outside lower right", ncols=3, handlelength=1.6)
    return figure


def _lane_name(host: str, rank: int | None, store_host: str) -> str:
    if rank is not None:
        return f"rank {rank}"
    return f"{host}: torchrun" + (", store" if host == store_host else "")


def _bar(axes: Axes, lane: int, stay: Stay) -> None:
    colour = AGENT if stay.rank is None else rank_colour(stay.rank)
    look = {
        "starts": {"facecolor": tint(colour, 0.25)},
        "waits": {"facecolor": "white", "hatch": WAITING, "hatchcolor": colour},
        "works": {"facecolor": colour},
    }[stay.what]
    axes.barh(
        lane, stay.end - stay.begin, left=stay.begin, height=0.66, edgecolor=colour, lw=1, **look
    )


def alt_text_of_rendezvous(meeting: Meeting) -> str:
    """The same times in words."""
    stays, ranks_given, group_met, store_host = meeting
    begun = [
        f"the torchrun of {stay.host} at {stay.begin:.1f} s"
        for stay in stays
        if stay.rank is None and stay.what == "starts"
    ]
    placed: dict[str, list[str]] = {}
    for stay in stays:
        if stay.rank is not None and stay.what == "starts":
            placed.setdefault(stay.host, []).append(str(stay.rank))
    ranks = "; ".join(f"{host} has the ranks {', '.join(own)}" for host, own in placed.items())
    return (
        f"A lane for each torchrun and for each rank, over time. Started: {', '.join(begun)}. "
        f"{store_host} keeps the store. Ranks are assigned at {ranks_given:.1f} s: {ranks}. The "
        f"ranks start Python, and the group has met at {group_met:.1f} s; until then they wait for "
        "each other, and afterwards they work."
    )
